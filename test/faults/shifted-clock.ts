import { readFileSync } from 'node:fs';

/**
 * A program loads this module by `--import`. The module shifts the program's clock by the milliseconds in a file,
 * which it reads repeatedly. Timers use the monotonic clock, which is not shifted, as on a real machine.
 */

const file = process.env['CLOCK_SHIFT_FILE'] ?? '';
let shift = 0;

const look = (): void => {
  try {
    shift = Number(readFileSync(file, 'utf8'));
  } catch {
    shift = 0;
  }
};
look();
setInterval(look, 50).unref();

const RealDate = Date;
class ShiftedDate extends RealDate {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(RealDate.now() + shift);
    else super(...(given as [number]));
  }
  static override now(): number {
    return RealDate.now() + shift;
  }
}
globalThis.Date = ShiftedDate as DateConstructor;
