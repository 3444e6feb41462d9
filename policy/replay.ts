import { ZodError } from 'zod';
import { canonicalize } from '#protocol/canonical-json';
import { documentHash } from '#protocol/hash';
import { parseStrict, pointerStep, type JsonValue } from '#protocol/json';
import type { ReplayDifference } from '#protocol/schemas/replay';
import { nativeSha256, nativeTextHash } from '#runtime/crypto/node';
import type { PinnedIntake } from '#sql/admissions/pinned-intake';
import { deriveAep, type DerivedAep } from './derive-aep.js';
import { IntakeMismatchError } from './errors.js';
import type { PolicyInput } from './input.js';
import type { ReplayPolicy } from './replay-policies.js';
import { readSubject } from './subject.js';

/** What a decision was recorded as. */
export interface Recorded {
  /** Null once erased: then only its hash is compared. */
  aep: JsonValue;
  /** What the log commits to, lower-case hex. */
  aepHash: string;
  /** Not derived from anything: which key signs is the worker's setting. */
  keyId: string;
}

export interface Replayed {
  differences: ReplayDifference[];
  /** Null when the stored request is not the one that was accepted, so that there is no input. */
  input: PolicyInput | null;
  inputHash: string | null;
}

/**
 * Takes a decision again, from the same row by the same function as the worker, and compares what it
 * comes to with what was recorded, member by member and with the log's commitment to it.
 */
export function replay(intake: PinnedIntake, policy: ReplayPolicy, recorded: Recorded): Replayed {
  const derived = derive(intake, policy, recorded.keyId);
  if (derived === null) {
    return {
      differences: [
        {
          pointer: '/request_hash',
          recorded: requestHashOf(recorded.aep) ?? intake.requestHash.toString('hex'),
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

/** Null when the stored request cannot be the one that was accepted. */
function derive(intake: PinnedIntake, policy: ReplayPolicy, keyId: string): DerivedAep | null {
  if (hashOf(intake.request) !== intake.requestHash.toString('hex')) return null;
  try {
    return deriveAep(intake, policy, keyId);
  } catch (error) {
    if (error instanceof IntakeMismatchError || error instanceof ZodError) return null;
    throw error;
  }
}

function requestHashOf(aep: JsonValue): JsonValue | undefined {
  return isObject(aep) ? own(aep, 'request_hash') : undefined;
}

/** Of the canonical form; null when it is no JSON any more. */
function hashOf(request: Uint8Array): string | null {
  try {
    return documentHash(nativeSha256, parseStrict(request));
  } catch {
    return null;
  }
}

/** Where two documents differ, with what each has there. A list is one value: its order counts. */
export function differencesOf(
  recorded: JsonValue,
  replayed: JsonValue,
  pointer = '',
): ReplayDifference[] {
  if (isObject(recorded) && isObject(replayed)) {
    const names = [...new Set([...Object.keys(recorded), ...Object.keys(replayed)])].sort();
    return names.flatMap((name) => {
      const below = pointer + pointerStep(name);
      const before = own(recorded, name);
      const after = own(replayed, name);
      if (before === undefined || after === undefined) {
        return [
          {
            pointer: below,
            ...(before === undefined ? {} : { recorded: before }),
            ...(after === undefined ? {} : { replayed: after }),
          },
        ];
      }
      return differencesOf(before, after, below);
    });
  }
  return canonicalize(recorded) === canonicalize(replayed) ? [] : [{ pointer, recorded, replayed }];
}

function own(value: Record<string, JsonValue>, name: string): JsonValue | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

function isObject(value: JsonValue): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
