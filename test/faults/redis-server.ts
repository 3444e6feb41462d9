import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startInstalled, type InstalledServer } from '#bench/harness/tools';
import { freePort } from '../fixtures/free-port.js';

/** A Redis that can be killed, configured as documented (noeviction), without persistence. */
export class RedisServer {
  private server: InstalledServer | null = null;
  private asking: Redis | null = null;

  private constructor(
    readonly port: number,
    private readonly dir: string,
  ) {}

  /** @throws OperatorError when redis-server is not installed */
  static async start(dir: string): Promise<RedisServer> {
    await mkdir(dir, { recursive: true });
    const redis = new RedisServer(await freePort(), dir);
    await redis.start();
    return redis;
  }

  get client(): Redis {
    if (this.asking === null) throw new Error('this Redis is not running');
    return this.asking;
  }

  get pid(): number {
    return this.server?.pid ?? 0;
  }

  async start(): Promise<void> {
    const settings = {
      bind: '127.0.0.1',
      port: String(this.port),
      dir: this.dir,
      save: '',
      appendonly: 'no',
      'maxmemory-policy': 'noeviction',
    };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
    this.server = startInstalled('redis-server', args);
    const client = new Redis(this.port, '127.0.0.1', {
      maxRetriesPerRequest: null,
      retryStrategy: () => 20,
    });
    client.on('error', () => undefined);
    await client.ping();
    this.asking = client;
  }

  async kill(): Promise<void> {
    this.asking?.disconnect();
    this.asking = null;
    const { server } = this;
    this.server = null;
    if (server === null) return;
    if (server.pid > 0) process.kill(server.pid, 'SIGKILL');
    while (!server.hasExited()) await sleep(5);
  }
}
