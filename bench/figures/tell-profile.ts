import { say } from '../say.js';
import { topSelfTimes } from './top-self-times.js';

/** Says in which functions the processes that left their CPU profiles in `directory` were, most first. */
export async function tellProfile(what: string, directory: string, most: number): Promise<void> {
  say(`\nwhere the time went: ${what}`);
  for (const { where, ms, share } of await topSelfTimes(directory, most)) {
    say(`${(share * 100).toFixed(1).padStart(6)} % ${ms.toFixed(0).padStart(8)} ms  ${where}`);
  }
}
