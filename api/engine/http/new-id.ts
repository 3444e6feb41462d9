import { v7 as uuidv7 } from 'uuid';

/** A UUIDv7 as 32 lower-case hex characters, the form of all registry ids. */
export function newUuidHex(): string {
  return uuidv7().replaceAll('-', '');
}
