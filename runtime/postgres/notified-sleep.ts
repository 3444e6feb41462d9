import { WakeableSleep } from '../concurrency.js';
import type { Sql } from './connect.js';

/** Notifications without a sleep in between after which receiving stops. */
const UNUSED_LIMIT = 20;

/**
 * A sleep that a notification ends. While the caller is too busy to sleep it does not listen, because
 * each notification would wake this process and its PostgreSQL server process to no effect.
 */
export class NotifiedSleep {
  private readonly sleeping = new WakeableSleep();
  private readonly receive: (isReceiving: boolean) => Promise<void>;
  private isReceiving = true;
  private unused = 0;

  constructor(sql: Pick<Sql, 'onNotification'>, channel: string) {
    this.receive = sql.onNotification(channel, () => {
      this.sleeping.wake();
      this.unused += 1;
      if (this.unused > UNUSED_LIMIT && this.isReceiving) void this.setReceiving(false);
    });
  }

  /**
   * Resolves after `ms` milliseconds, or earlier at a notification or the signal; at once if it did not
   * listen, because the caller must look for what notifications announced meanwhile.
   */
  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    this.unused = 0;
    if (this.isReceiving) await this.sleeping.sleep(ms, signal);
    else await this.setReceiving(true);
  }

  private async setReceiving(isReceiving: boolean): Promise<void> {
    this.isReceiving = isReceiving;
    // A new connection does what a lost one did not.
    await this.receive(isReceiving).catch(() => undefined);
  }
}
