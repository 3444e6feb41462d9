import { ZodError } from 'zod';
import { canonicalize, parseStrict, pointerStep, type JsonValue } from '#protocol/json';
import { attempt } from '#protocol/errors';
import { documentHash } from '#protocol/hash';
import type { ReplayDifference } from '#protocol/schemas/proof-export';
import { nativeSha256, nativeTextHash } from '#runtime/crypto/node';
import type { PinnedIntake } from '#sql/admissions/intake';
import { deriveAep, type DerivedAep } from './derive-aep.js';
import { IntakeMismatchError } from './errors.js';
import type { PolicyInput } from './decide.js';
import type { ReplayPolicy } from './replay-policies.js';
import { readSubject } from './subject.js';

/** The recorded decision. */
export interface Recorded {
  /** Null once erased; then only its hash is compared. */
  aep: JsonValue;
  /** The commitment in the log, lower-case hex. */
  aepHash: string;
  /** Not derived: the worker's configuration determines the signing key. */
  keyId: string;
}

export interface Replayed {
  differences: ReplayDifference[];
  /** Null when the stored request is not the accepted one. */
  input: PolicyInput | null;
  inputHash: string | null;
}

/**
 * Repeats a decision from the same row with the worker's function, and compares the result with the
 * recorded AEP, member by member, and with the log's commitment.
 */
export function replay(intake: PinnedIntake, policy: ReplayPolicy, recorded: Recorded): Replayed {
  const derived = derive(intake, policy, recorded.keyId);
  if (derived === null) {
    return {
      differences: [
        {
          pointer: '/request_hash',
          recorded:
            (isObject(recorded.aep) ? own(recorded.aep, 'request_hash') : undefined) ??
            intake.requestHash.toString('hex'),
          replayed: hashOf(intake.request),
        },
      ],
      input: null,
      inputHash: null,
    };
  }
  const found = recorded.aep === null ? [] : differencesOf(recorded.aep, derived.aep);
  const hash = nativeTextHash(derived.text);
  const unlogged = { recorded: { aep_hash: recorded.aepHash }, replayed: { aep_hash: hash } };
  return {
    differences:
      found.length === 0 && hash !== recorded.aepHash ? [{ pointer: '', ...unlogged }] : found,
    input: readSubject(intake, parseStrict(intake.request)).policyInput,
    inputHash: derived.aep.policy.input_hash,
  };
}

/** Null when the stored request cannot be the accepted one. */
function derive(intake: PinnedIntake, policy: ReplayPolicy, keyId: string): DerivedAep | null {
  if (hashOf(intake.request) !== intake.requestHash.toString('hex')) return null;
  try {
    return deriveAep(intake, policy, keyId);
  } catch (error) {
    if (error instanceof IntakeMismatchError || error instanceof ZodError) return null;
    throw error;
  }
}

/** Hash of the canonical form; null when the request is invalid JSON. */
function hashOf(request: Uint8Array): string | null {
  return attempt(() => documentHash(nativeSha256, parseStrict(request))) ?? null;
}

/**
 * The differences between two documents, with both values. A list is one value, because its order
 * matters.
 */
export function differencesOf(
  recorded: JsonValue,
  replayed: JsonValue,
  pointer = '',
): ReplayDifference[] {
  if (!isObject(recorded) || !isObject(replayed)) {
    const isSame = canonicalize(recorded) === canonicalize(replayed);
    return isSame ? [] : [{ pointer, recorded, replayed }];
  }
  const names = [...new Set([...Object.keys(recorded), ...Object.keys(replayed)])].sort();
  return names.flatMap((name) => {
    const below = pointer + pointerStep(name);
    const [before, after] = [own(recorded, name), own(replayed, name)];
    if (before !== undefined && after !== undefined) return differencesOf(before, after, below);
    return [
      {
        pointer: below,
        ...(before !== undefined && { recorded: before }),
        ...(after !== undefined && { replayed: after }),
      },
    ];
  });
}

function own(value: Record<string, JsonValue>, name: string): JsonValue | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

function isObject(value: JsonValue): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
