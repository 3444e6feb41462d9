import * as z from 'zod';
import { utf8 } from '#protocol/bytes';
import { canonicalize } from '#protocol/json';
import { attempt } from '#protocol/errors';
import { hashHex } from '#protocol/hash';
import { nativeSha256 } from '#runtime/crypto/node';
import type { PolicyFiles, StoredPolicySet } from '#sql/admissions/policies';
import { evaluate, preparse, type PolicyEngine } from './decide.js';
import {
  CEDAR_VERSION,
  manifestOf,
  PolicySetError,
  requireValid,
  runningEngine,
  type EngineIdentity,
} from './policy-set.js';

/** A stored set in its current form, for decisions that are not signed. */
export interface ReplayPolicy extends PolicyEngine {
  /** Recomputed from the stored texts, under the engine that the set was stored for. */
  digest: string;
  /** Whether that engine and the one of this process are identical. */
  sameEngine: boolean;
}

export type ReplayPolicies = (stored: StoredPolicySet) => Promise<ReplayPolicy>;

/**
 * Opens stored sets for replay. Workers reject a set that does not match its digest; replay runs
 * the stored texts, so that a changed text shows in the decision. Texts that do not validate deny
 * everything, as an erring engine does.
 *
 * Keeps at most `limit` sets prepared: the engine never frees memory, so a new set replaces the
 * least recently used one.
 */
export function replayPolicies(limit = 16): ReplayPolicies {
  const places = new Map<string, { name: string; usable: boolean }>();

  const prepared = (files: PolicyFiles): { name: string; usable: boolean } => {
    const { schema, policies } = files;
    const content = hashHex(nativeSha256, utf8(canonicalize({ schema, policies })));
    let place = places.get(content);
    if (place === undefined) {
      const name = nextName();
      place = { name, usable: load(name, files) };
    }
    // Reinserts the set as the most recently used one.
    places.delete(content);
    places.set(content, place);
    return place;
  };

  const nextName = (): string => {
    const [oldest] = places;
    if (places.size < limit || oldest === undefined) return `replay-${places.size}`;
    places.delete(oldest[0]);
    return oldest[1].name;
  };

  return async (stored) => {
    const { files } = stored;
    const running = await runningEngine();
    const { digest, sameEngine } = identify(stored, running);
    return {
      digest,
      sameEngine,
      engineVersion: CEDAR_VERSION,
      // Looked up at each decision, without an await before use, so another set cannot replace it.
      decide(input) {
        const { name, usable: ready } = prepared(files);
        return ready ? evaluate(name, input).decision : { effect: 'DENY', reasons: [] };
      },
    };
  };
}

/** Returns false for texts that do not parse or validate. */
function load(name: string, files: PolicyFiles): boolean {
  try {
    requireValid(files);
    preparse(name, files);
    return true;
  } catch (error) {
    if (error instanceof PolicySetError) return false;
    throw error;
  }
}

const identitySchema = z.looseObject({ engine_version: z.string(), engine_sha256: z.string() });

function identify(
  { digest, files, manifest }: StoredPolicySet,
  running: EngineIdentity,
): { digest: string; sameEngine: boolean } {
  const under = (engine: EngineIdentity): string =>
    hashHex(nativeSha256, utf8(manifestOf(files, engine)));
  const now = under(running);
  const recordedFor = engineOf(manifest, digest);
  if (now === digest.toString('hex') || recordedFor === null) {
    return { digest: now, sameEngine: true };
  }
  const sameEngine =
    recordedFor.engine_version === running.engine_version &&
    recordedFor.engine_sha256 === running.engine_sha256;
  return { digest: under(recordedFor), sameEngine };
}

/** A manifest that does not match the digest was changed, so its engine is unknown. */
function engineOf(manifest: string, digest: Buffer): EngineIdentity | null {
  if (hashHex(nativeSha256, utf8(manifest)) !== digest.toString('hex')) return null;
  return attempt(() => identitySchema.parse(JSON.parse(manifest))) ?? null;
}
