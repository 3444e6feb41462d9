import { createHash, timingSafeEqual } from 'node:crypto';
import { OperatorError } from '#runtime/process/operator-error';
import { readPrivateFile } from '#runtime/process/files';

/** The file's content is too short to be a key. */
export class BoardKeyError extends OperatorError {
  override name = 'BoardKeyError';
}

const LEAST_CHARACTERS = 32;
const KEY = /^[\x21-\x7e]+$/;

const digest = (text: string): Buffer => createHash('sha256').update(text, 'utf8').digest();

/** Checks whether an `Authorization` header has the key, in constant time. */
export type HasKey = (authorization: string | undefined) => boolean;

/** @throws when the file is unusable; the message never quotes its content */
export function loadBoardKey(file: string): HasKey {
  const key = readPrivateFile(file, 'board key').trim();
  if (key.length < LEAST_CHARACTERS || !KEY.test(key)) {
    throw new BoardKeyError(
      `The dashboard key ${file} must hold one word of at least ${String(LEAST_CHARACTERS)} characters. Create one with: openssl rand -hex 32`,
    );
  }
  const expected = digest(key);
  return (authorization) => {
    const given = passwordOf(authorization ?? '');
    // Compares hashes: equal length, constant time.
    return timingSafeEqual(digest(given ?? ''), expected) && given !== null;
  };
}

/** The password of HTTP Basic (RFC 7617), for any user name. */
function passwordOf(authorization: string): string | null {
  const encoded = /^basic ([A-Za-z0-9+/]{1,1024}={0,2})$/i.exec(authorization)?.[1];
  if (encoded === undefined) return null;
  const pair = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  return colon < 0 ? null : pair.slice(colon + 1);
}
