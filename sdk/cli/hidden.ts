/** Whatever looks like the beginning of a key, however much of one follows. */
const KEYS = /svc_sk_[A-Za-z0-9_-]+/gi;
const IN_ITS_PLACE = 'svc_sk_…';
/** What is shorter is no key, and might be anywhere. */
const SHORTEST = 8;

/**
 * Keys that no output may hold. A server may say back what it was sent, as those do that are meant for
 * looking at requests, and what a command prints is kept in logs and pasted into tickets.
 */
export interface Hidden {
  /** The key that is sent from now on; it may have any form. */
  hide(key: string): void;
  /** The text without it, and without whatever looks like one. */
  without(text: string): string;
  /** The same of every text and every name in a JSON value. */
  withoutIn(value: unknown): unknown;
  /** Whether bytes hold the key that was sent; what looks like another's may be of a document. */
  isIn(bytes: Uint8Array): boolean;
}

export function createHidden(): Hidden {
  let sent: string | null = null;
  const without = (text: string): string => {
    const rest = sent === null ? text : text.replaceAll(sent, IN_ITS_PLACE);
    return rest.replace(KEYS, IN_ITS_PLACE);
  };
  const withoutIn = (value: unknown): unknown => {
    if (typeof value === 'string') return without(value);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(withoutIn);
    const members = Object.entries(value).map(([name, one]) => [without(name), withoutIn(one)]);
    return Object.fromEntries(members) as object;
  };
  return {
    hide: (key) => {
      if (key.length >= SHORTEST) sent = key;
    },
    without,
    withoutIn,
    isIn: (bytes) => sent !== null && Buffer.from(bytes).includes(sent),
  };
}
