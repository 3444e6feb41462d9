import { writeUtf8 } from './bytes.js';
import { documentHash, hashHex, type Sha256 } from './hash.js';
import type { JsonValue } from './json.js';
import type { Budgets } from './policy-input.js';
import type { AgentEnvelope, ExecuteRequest } from './schemas/admission.js';

/** The salt for a name, 32 bytes in hex. */
export type SaltOf = (name: string) => string;

/**
 * The salts of one decision. Each is an HMAC under the seed, so a disclosed salt does not reveal the
 * others.
 *
 * @param seed 32 random bytes, which never leave the service
 */
export function saltsFrom(sha256: Sha256, seed: Uint8Array): SaltOf {
  // HMAC-SHA-256 (RFC 2104).
  return (name) => {
    const inner = keyed(seed, 0x36, 3 * name.length);
    const end = BLOCK + writeUtf8(name, inner.subarray(BLOCK));
    const hash = sha256(inner.subarray(0, end));
    const outer = keyed(seed, 0x5c, hash.length);
    outer.set(hash, BLOCK);
    return hashHex(sha256, outer);
  };
}

/** The block size of SHA-256 in bytes. */
const BLOCK = 64;
// A reused buffer, because an allocation of more than 64 bytes takes longer than hashing.
const scratch = new Uint8Array(4 * BLOCK);

/** A block with the HMAC key XOR `pad`, then room for a message. The next call overwrites the buffer. */
function keyed(key: Uint8Array, pad: number, room: number): Uint8Array {
  const length = BLOCK + room;
  const bytes = length > scratch.length ? new Uint8Array(length) : scratch.subarray(0, length);
  bytes.fill(pad, 0, BLOCK);
  for (let i = 0; i < key.length; i++) bytes[i]! ^= key[i]!;
  return bytes;
}

/** The opening of a commitment: a value with its name and salt, like a disclosure of RFC 9901. */
export type Disclosure = [salt: string, name: string, value: JsonValue];

/** The commitment to a disclosed value, lower-case hex. */
export function commitmentTo(sha256: Sha256, disclosure: Disclosure): string {
  return documentHash(sha256, disclosure);
}

export const REQUEST_HASH = 'request_hash';
const STATED_HASHES = ['arguments_hash', 'result_hash'] as const;

/** The names of disclosed values without the prefix `fact.` or `budget.`. No fact may have one of these names. */
export const COMMITTED_HASHES: readonly string[] = [REQUEST_HASH, ...STATED_HASHES];

/** The values that an AEP commits to, besides the hash of its request, keyed by name. */
function committedValues(
  request: ExecuteRequest | AgentEnvelope,
  budgets: Budgets,
): Record<string, JsonValue> {
  const values: Record<string, JsonValue> = {};
  for (const [name, { window, before, after }] of Object.entries(budgets)) {
    values[`budget.${name}`] = { window, before, after };
  }
  const { facts = {} } = request as { facts?: Record<string, JsonValue> };
  for (const [name, value] of Object.entries(facts)) values[`fact.${name}`] = value;
  for (const name of STATED_HASHES) {
    const value = (request as Partial<Record<typeof name, string>>)[name];
    if (value !== undefined) values[name] = value;
  }
  return values;
}

/** Every value that an AEP commits to, with its salt, ascending by name. */
export function disclosuresOf(
  saltOf: SaltOf,
  request: ExecuteRequest | AgentEnvelope,
  requestHash: string,
  budgets: Budgets = {},
): Disclosure[] {
  const values: Record<string, JsonValue> = {
    ...committedValues(request, budgets),
    [REQUEST_HASH]: requestHash,
  };
  return Object.keys(values)
    .sort()
    .map((name) => [saltOf(name), name, values[name]!]);
}

/** The two members of an AEP that commit to values. */
export interface CommittedIn {
  request_commitment: string;
  /** Hashes in ascending order, so that the order reveals no name. */
  commitments: string[];
}

export function commitmentsOf(sha256: Sha256, disclosures: readonly Disclosure[]): CommittedIn {
  const found: CommittedIn = { request_commitment: '', commitments: [] };
  for (const disclosure of disclosures) {
    const commitment = commitmentTo(sha256, disclosure);
    if (disclosure[1] === REQUEST_HASH) found.request_commitment = commitment;
    else found.commitments.push(commitment);
  }
  found.commitments.sort();
  return found;
}

/**
 * The disclosed values by name, and the number of withheld ones. The caller must have verified the
 * disclosures.
 */
export function disclosedIn({
  aep,
  disclosures,
}: {
  aep: CommittedIn;
  disclosures: readonly Disclosure[];
}): { disclosed: Record<string, JsonValue>; withheld: number } {
  return {
    disclosed: Object.fromEntries(disclosures.map(([, name, value]) => [name, value])),
    withheld: aep.commitments.length + 1 - disclosures.length,
  };
}

/** The index of the first disclosure that the AEP does not commit to, or that is out of order; or -1. */
export function firstUncommitted(
  sha256: Sha256,
  aep: CommittedIn,
  disclosures: readonly Disclosure[],
): number {
  return disclosures.findIndex((disclosure, i) => {
    const [, name] = disclosure;
    const commitment = commitmentTo(sha256, disclosure);
    const isCommitted =
      name === REQUEST_HASH
        ? commitment === aep.request_commitment
        : aep.commitments.includes(commitment);
    return !isCommitted || (i > 0 && disclosures[i - 1]![1] >= name);
  });
}
