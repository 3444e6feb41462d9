import { v7 as uuidv7 } from 'uuid';

/** A UUIDv7 as 32 lower-case hex characters: what every id of the registry is made of. */
export function newUuidHex(): string {
  return uuidv7().replaceAll('-', '');
}
