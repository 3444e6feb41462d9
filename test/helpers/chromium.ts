import { existsSync } from 'node:fs';

const PLACES = [
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
];

/** The browser of this machine: none is ever downloaded. `CHROMIUM` names another; null for none. */
export const chromiumPath: string | null =
  [process.env['CHROMIUM'], ...PLACES].find(
    (path): path is string => path !== undefined && path !== '' && existsSync(path),
  ) ?? null;

/** Appended to what is skipped for want of it. CI skips nothing, so there the tests fail instead. */
export const withoutChromium =
  chromiumPath === null ? ' (skipped: no chromium here; install one, or name it in CHROMIUM)' : '';

/**
 * Without its sandbox, which root and many containers cannot have: it visits this machine alone. And
 * without /dev/shm, which is too small for a page in many containers.
 */
export const chromiumArgs = ['--no-sandbox', '--disable-dev-shm-usage'];
