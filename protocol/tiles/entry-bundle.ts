import { ProtocolError } from '../errors.js';
import { TILE_WIDTH } from './layout.js';

const MAX_ENTRY_BYTES = 0xffff;

/** An entry bundle (C2SP tlog-tiles): every entry after its length as a big-endian uint16. */
export function encodeEntryBundle(entries: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const entry of entries) {
    if (entry.length > MAX_ENTRY_BYTES) {
      throw new ProtocolError('malformed_entry', 'a log entry exceeds 65535 bytes');
    }
    length += 2 + entry.length;
  }
  const bundle = new Uint8Array(length);
  let at = 0;
  for (const entry of entries) {
    bundle[at] = entry.length >> 8;
    bundle[at + 1] = entry.length & 0xff;
    bundle.set(entry, at + 2);
    at += 2 + entry.length;
  }
  return bundle;
}

/** The entries of a bundle, as views into it. A truncated bundle is `malformed_tile`. */
export function decodeEntryBundle(bundle: Uint8Array): Uint8Array[] {
  const entries: Uint8Array[] = [];
  let at = 0;
  while (at < bundle.length) {
    const start = at + 2;
    const end = start + (bundle[at]! * 256 + (bundle[at + 1] ?? 0));
    if (end > bundle.length || entries.length === TILE_WIDTH) {
      throw new ProtocolError('malformed_tile', 'not an entry bundle');
    }
    entries.push(bundle.subarray(start, end));
    at = end;
  }
  return entries;
}
