import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/files';

/** The Content-Security-Policy of a page whose style sheet and scripts are files of its own origin. */
export const pagePolicy = (formAction: "'self'" | "'none'"): string =>
  [
    "default-src 'none'",
    "style-src 'self'",
    "script-src 'self'",
    "connect-src 'self'",
    "img-src 'self'",
    `form-action ${formAction}`,
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

/** A script of `api/browser` as bundled by the build. */
export function readScript(
  file: 'page/verify.js' | 'page/prove.js' | 'approval-page/approve.js',
): string {
  const path = join(packageRoot, 'dist', file);
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new OperatorError(`${path} cannot be read: run npm run build.`, { cause });
  }
}
