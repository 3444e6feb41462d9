import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { UnreachableError, type LogFiles } from '../../../protocol/monitor/files.js';
import { httpError } from '../../http/answers.js';
import { openHttpClient } from '../../http/client.js';
import { SdkError, type CallOptions } from '../../index.js';
import { parseBaseUrl } from '../../options.js';

/** Limit of a response: above the largest entry bundle, 256 entries of 64 KiB. */
const MAX_BYTES = 17 * 1024 * 1024;
/** Where a public API serves its log; a static mirror serves it at the root. */
const PREFIXES = ['log/', ''];
const LOG_FILE = /^(checkpoint$|tile\/)/;

/** The files at an http(s) address, or in a directory. @throws SdkError `invalid_input` */
export function openFiles(where: string, options: CallOptions): LogFiles {
  return /^[a-z0-9+.-]+:\/\//i.test(where) ? httpFiles(where, options) : directoryFiles(where);
}

function directoryFiles(root: string): LogFiles {
  return {
    where: root,
    read: async (path) => {
      try {
        return await readFile(join(root, path));
      } catch (cause) {
        if (isMissing(cause)) return null;
        throw new UnreachableError(`${path} cannot be read`, { cause });
      }
    },
  };
}

export const isMissing = (error: unknown): boolean =>
  ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');

function httpFiles(where: string, options: CallOptions): LogFiles {
  const client = openHttpClient(options, parseBaseUrl('publicUrl', where), {}, MAX_BYTES);
  const get = async (path: string): Promise<Uint8Array | null> => {
    const request = { method: 'GET', path: `/${path}`, accept: '*/*' } as const;
    try {
      const answer = await client.send(request);
      if (answer.status === 200) return answer.bytes;
      if (answer.status === 404) return null;
      throw httpError(answer);
    } catch (cause) {
      if (!(cause instanceof SdkError) || cause.code === 'aborted') throw cause;
      throw new UnreachableError(`${path}: ${cause.message}`, { cause });
    }
  };
  let prefix: string | null = null;
  return {
    where,
    read: async (path) => {
      if (!LOG_FILE.test(path)) return get(path);
      if (prefix !== null) return get(prefix + path);
      for (const candidate of PREFIXES) {
        const bytes = await get(candidate + path);
        if (bytes === null) continue;
        prefix = candidate;
        return bytes;
      }
      return null;
    },
  };
}
