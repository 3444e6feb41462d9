import { ZodError } from 'zod';
import { utf8 } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { hashHex } from '#protocol/hash';
import { canonicalize, isObject, pointerStep, type JsonValue } from '#protocol/json';
import type { ClosedRun } from '#protocol/schemas/aep';
import type { ReplayDifference } from '#protocol/schemas/proof-export';
import { nativeSha256 } from '#runtime/crypto/node';
import type { PinnedIntake } from '#sql/proofs/rebuild-aep';
import type { PolicyFiles, StoredPolicySet } from '#sql/admissions/policies';
import { type Budgets, type PolicyInput, budgetsOf, counterKey } from '#protocol/policy-input';
import {
  type PolicyDecision,
  evaluate,
  preparse,
  type PolicyEngine,
  type PreparedTexts,
  textsLoader,
  deriveAep,
  type DerivedAep,
  IntakeMismatchError,
  readIntake,
} from './decide.js';
import {
  CEDAR_VERSION,
  engineOf,
  manifestOf,
  PolicySetError,
  requireValid,
  runningEngine,
  type EngineIdentity,
} from './policy-set.js';

export interface Recorded {
  /** The recorded AEP; null after an erasure of the payload, when only `aepHash` can be compared. */
  aep: JsonValue;
  /** SHA-256 of the AEP as the log entry states it, lower-case hex. */
  aepHash: string;
  /** The recorded id of the signing key, which the worker's configuration determined. */
  keyId: string;
  /** The recorded counter values; null if no counter applied. */
  budgets: Budgets | null;
  /** For the proof of a `close`: the proofs of its run in the log. */
  closedRun?: ClosedRun | null;
}

export interface Replayed {
  differences: ReplayDifference[];
  /** The policy input; null when the stored request is not the accepted one. */
  input: PolicyInput | null;
  inputHash: string | null;
}

/**
 * Repeats a decision from the stored admission with the function of the worker. Compares the result with
 * the recorded AEP, member by member, and with the log's commitment.
 */
export function replay(intake: PinnedIntake, policy: ReplayPolicy, recorded: Recorded): Replayed {
  const derived = derive(intake, policy, recorded);
  if (derived === null) {
    return {
      differences: [
        {
          pointer: '/request_commitment',
          recorded: intake.requestHash.toString('hex'),
          replayed: hashHex(nativeSha256, intake.request),
        },
      ],
      input: null,
      inputHash: null,
    };
  }
  const found = recorded.aep === null ? [] : differencesOf(recorded.aep, derived.aep);
  const hash = hashHex(nativeSha256, derived.bytes);
  const unlogged = { recorded: { aep_hash: recorded.aepHash }, replayed: { aep_hash: hash } };
  return {
    differences:
      found.length === 0 && hash !== recorded.aepHash ? [{ pointer: '', ...unlogged }] : found,
    input: derived.input,
    inputHash: derived.aep.policy.input_hash,
  };
}

/** Derives the AEP again; null when the stored request cannot be the original. */
function derive(
  intake: PinnedIntake,
  policy: ReplayPolicy,
  { budgets, closedRun, keyId }: Recorded,
): DerivedAep | null {
  try {
    return deriveAep(readIntake(intake), policy, keyId, budgets ?? {}, closedRun);
  } catch (error) {
    const isMismatch = error instanceof IntakeMismatchError || error instanceof ProtocolError;
    if (isMismatch || error instanceof ZodError) return null;
    throw error;
  }
}

/** Compares a list as one value, because its order matters. */
function differencesOf(recorded: JsonValue, replayed: JsonValue, pointer = ''): ReplayDifference[] {
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

/** A stored set that decides by its stored texts, even if altered, and whose decisions are never signed. */
export interface ReplayPolicy extends PolicyEngine {
  /** The digest of the stored texts, for the version of Cedar that the set was stored for. */
  digest: string;
  /** Whether the set was stored for the version of Cedar that this process runs. */
  sameEngine: boolean;
}

/**
 * Evaluates a replayed input under another set. Uses a recorded counter value only if both sets
 * define the counter equally; otherwise `evaluate` denies.
 */
export function decideUnder(
  other: ReplayPolicy,
  recorded: ReplayPolicy,
  input: PolicyInput,
): PolicyDecision {
  // With the run id '' for both, two counters have equal keys exactly if their definitions are equal.
  const shared = Object.entries(input.budgets).filter(([name]) => {
    const keys = [other, recorded].map(({ counters }) => {
      const counter = Object.hasOwn(counters, name) ? counters[name] : undefined;
      return counter && counterKey(nativeSha256, name, counter, input, '');
    });
    return keys[0] === keys[1];
  });
  const budgets = budgetsOf(other.counters, input, Object.fromEntries(shared));
  return other.decide({ ...input, budgets });
}

export type ReplayPolicies = (stored: StoredPolicySet) => Promise<ReplayPolicy>;

/**
 * Opens stored sets for replay. Workers reject a set that does not match its digest, but replay runs
 * the stored texts, so that a changed text shows in the decision. If the texts do not validate, every
 * decision is a denial, as when a policy fails to evaluate.
 */
export function replayPolicies(limit = 16): ReplayPolicies {
  const loaded = textsLoader(limit, load);
  return async (stored) => {
    const { files } = stored;
    const { schema, policies, counters = {} } = files;
    const content = hashHex(nativeSha256, utf8(canonicalize({ schema, policies, counters })));
    const running = await runningEngine();
    const { digest, sameEngine } = identify(stored, running);
    return {
      digest,
      sameEngine,
      engineVersion: CEDAR_VERSION,
      counters,
      decide(input) {
        const texts = loaded(content, files);
        return texts === null ? { effect: 'DENY', reasons: [] } : evaluate(texts, input);
      },
    };
  };
}

/** Loads texts into Cedar; null if they do not parse or validate. */
function load(name: string, files: PolicyFiles): PreparedTexts | null {
  try {
    requireValid(files);
    return preparse(name, files);
  } catch (error) {
    if (error instanceof PolicySetError) return null;
    throw error;
  }
}

function identify({ digest, files, manifest }: StoredPolicySet, running: EngineIdentity) {
  const under = (engine: EngineIdentity): string =>
    hashHex(nativeSha256, utf8(manifestOf(files, engine)));
  const now = under(running);
  const recordedFor = engineOf({ digest, manifest });
  if (now === digest.toString('hex') || recordedFor === null) {
    return { digest: now, sameEngine: true };
  }
  const sameEngine =
    recordedFor.engine_version === running.engine_version &&
    recordedFor.engine_sha256 === running.engine_sha256;
  return { digest: under(recordedFor), sameEngine };
}
