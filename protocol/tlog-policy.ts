import { toHex } from './bytes.js';
import { findCosignature } from './cosignature.js';
import type { Ed25519Verify } from './ed25519.js';
import { errorOf, ProtocolError } from './errors.js';
import { nobleSha256, type Sha256 } from './hash.js';
import {
  COSIGNATURE_TYPE,
  ED25519_TYPE,
  parseVkey,
  type SignatureType,
  type Vkey,
} from './note.js';

/** C2SP tlog-policy: the logs that a reader accepts, and the witnesses that must cosign. */
export interface TlogPolicy {
  logs: readonly PolicyLog[];
  witnesses: readonly PolicyWitness[];
  /** The required quorum; null for `quorum none`. */
  quorum: Quorum | null;
}

export interface PolicyLog {
  vkey: Vkey;
  url: string | null;
}

export interface PolicyWitness {
  name: string;
  /** An Ed25519 cosignature key. */
  vkey: Vkey;
  /** The submission prefix (C2SP tlog-witness). */
  url: string | null;
}

/** A witness, or a group of which `threshold` members must have cosigned. */
export type Quorum = PolicyWitness | { threshold: number; members: readonly Quorum[] };

/** ASCII control characters, except tab and newline. */
const FORBIDDEN = /[^\t\n\u0020-\u007e\u0080-\u{10ffff}]/u;
const NUMBER = /^[1-9][0-9]{0,8}$/;

/**
 * Parses a policy file; throws `malformed_policy`, with the number of the line. Keys other than
 * Ed25519 are not supported: ignoring such a witness would change the quorum.
 */
export function parsePolicy(text: string, sha256: Sha256 = nobleSha256): TlogPolicy {
  const lines = text.split('\n');
  // A file cut within its last line could state a weaker quorum.
  if (lines.pop() !== '') throw malformed('the policy does not end in a newline');
  const reader = new PolicyReader(sha256);
  lines.forEach((line, index) => {
    try {
      if (FORBIDDEN.test(line)) throw malformed('a control character is not allowed');
      reader.read(line.split(/[ \t]+/).filter((item) => item !== ''));
    } catch (cause) {
      if (!(cause instanceof ProtocolError)) throw cause;
      throw malformed(`line ${index + 1}: ${cause.message}`, { cause });
    }
  });
  return reader.policy();
}

class PolicyReader {
  private readonly logs: PolicyLog[] = [];
  private readonly witnesses: PolicyWitness[] = [];
  private readonly named = new Map<string, Quorum>();
  private readonly members = new Set<string>();
  private readonly keys = new Set<string>();
  private quorum: Quorum | null | undefined;

  constructor(private readonly sha256: Sha256) {}

  read([keyword, ...items]: string[]): void {
    if (keyword === undefined || keyword.startsWith('#')) return;
    const [first = '', second = '', third = null] = items;
    if (keyword === 'log' && (items.length === 1 || items.length === 2)) {
      this.logs.push({ vkey: this.key(first, ED25519_TYPE), url: items[1] ?? null });
    } else if (keyword === 'witness' && (items.length === 2 || items.length === 3)) {
      const vkey = this.key(second, COSIGNATURE_TYPE);
      const witness = { name: first, vkey, url: third };
      this.define(first, witness);
      this.witnesses.push(witness);
    } else if (keyword === 'group' && items.length >= 3) {
      this.define(first, this.group(second, items.slice(2)));
    } else if (keyword === 'quorum' && items.length === 1) {
      if (this.quorum !== undefined) throw malformed('the quorum is already defined');
      this.quorum = first === 'none' ? null : this.find(first);
    } else {
      // Quotes no line: if an operator names a private key file by mistake, the message must not show the key.
      throw malformed('expected a valid log, witness, group or quorum');
    }
  }

  policy(): TlogPolicy {
    const { logs, witnesses, quorum } = this;
    if (quorum === undefined) throw malformed('the policy has no quorum');
    return { logs, witnesses, quorum };
  }

  /** The key of a line. No other line of the same kind may have this key, even under another name. */
  private key(text: string, type: SignatureType): Vkey {
    const vkey = parseVkey(text, this.sha256, type);
    const key = `${type} ${toHex(vkey.publicKey)}`;
    if (this.keys.has(key)) throw malformed(`an earlier line has the key of ${vkey.name}`);
    this.keys.add(key);
    return vkey;
  }

  private group(rule: string, names: readonly string[]): Quorum {
    const members = names.map((name) => {
      if (this.members.has(name)) throw malformed(`${name} is already a member of a group`);
      this.members.add(name);
      return this.find(name);
    });
    const words: Record<string, number> = { any: 1, all: members.length };
    const threshold = NUMBER.test(rule) ? Number(rule) : Object.hasOwn(words, rule) && words[rule];
    if (typeof threshold === 'number' && threshold <= members.length) return { threshold, members };
    throw malformed(`expected any, all or 1 to ${members.length}, not ${rule}`);
  }

  private define(name: string, quorum: Quorum): void {
    if (name === 'none' || this.named.has(name)) throw malformed(`${name} is already defined`);
    this.named.set(name, quorum);
  }

  private find(name: string): Quorum {
    const found = this.named.get(name);
    if (found === undefined) throw malformed(`${name} is not defined on an earlier line`);
    return found;
  }
}

const malformed = errorOf('malformed_policy');

/** Whether the quorum is met when exactly the witnesses that `has` accepts have cosigned. */
export function meetsQuorum(
  quorum: Quorum | null,
  has: (witness: PolicyWitness) => boolean,
): boolean {
  if (quorum === null) return true;
  if (!('members' in quorum)) return has(quorum);
  return quorum.members.filter((member) => meetsQuorum(member, has)).length >= quorum.threshold;
}

/**
 * Checks whether the witnesses that cosigned a note meet the quorum of a policy. Ignores signatures
 * of other keys and signatures that do not verify. Does not check the log's own signature: see
 * `openCheckpointNote`. Throws `malformed_note`.
 */
export function checkQuorum(note: string, policy: TlogPolicy, verify: Ed25519Verify) {
  // Times are in seconds since 1970.
  const cosigned = policy.witnesses.flatMap((witness) => {
    const found = findCosignature(note, witness.vkey, verify);
    return found === null ? [] : [{ witness, timestamp: found.timestamp }];
  });
  const isMet = meetsQuorum(policy.quorum, (one) => cosigned.some((by) => by.witness === one));
  return { isMet, cosigned };
}

/** Like {@link checkQuorum}, but throws `quorum_not_met` unless the note meets the quorum. */
export function requireQuorum(note: string, policy: TlogPolicy, verify: Ed25519Verify): void {
  const { isMet, cosigned } = checkQuorum(note, policy, verify);
  if (isMet) return;
  const names = cosigned.map(({ witness }) => witness.name).join(', ') || 'none of its witnesses';
  throw new ProtocolError(
    'quorum_not_met',
    `the checkpoint lacks the quorum of the policy: cosigned by ${names}`,
  );
}
