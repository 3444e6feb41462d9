import { toHex } from '../../protocol/bytes.js';
import { proveAnswer } from '../../protocol/evidence/answer.js';
import type { ProvedState } from '../../protocol/evidence/verify.js';
import { ProtocolError } from '../../protocol/errors.js';
import type { VerdictRoute } from '../../protocol/lookup-routes.js';
import { readLog, type LogPin, type PinnedLog } from '../../protocol/offline/trust.js';
import type { TextOrBytes } from '../../protocol/offline.js';
import { SdkError } from '../errors.js';
import type { PublicOptions } from '../options.js';
import { crypto, withPins } from '../pins.js';

type PinnedOptions = Pick<PublicOptions, 'pins' | 'maxAgeMs'>;

/** The pinned log against which answers are verified. */
export interface EvidenceTrust {
  log: LogPin;
  maxAgeMs: number | undefined;
}

/** The facts that the evidence of an answer proves, and the parties that the reader must trust for the rest. */
export interface Proved {
  /**
   * The proofs whose presence or absence in the map of the snapshot is proved. A proof that awaits its first verdict is
   * in the map, although the answer is NOT_FOUND.
   */
  proofs: { proof_id: string; found: boolean }[];
  /** Time of the snapshot: RFC 3339 UTC with milliseconds. */
  time: string;
  /** The snapshot supports its answers until this time. */
  valid_until: string;
  /** Age of the proved state in milliseconds. */
  age_ms: number;
  /** Index of the snapshot entry in the log. */
  log_index: number;
  /** Size of the tree of the signed checkpoint. */
  log_size: number;
  /** The parties to trust. Without witnesses, a log could show this reader a tree that it shows to no other reader. */
  trusted: { log_origin: string; log_key_id: string; witnesses: string[] };
}

/** Throws `unusable_pin` and `invalid_input`. */
export function readTrust(options: PinnedOptions & { pins: PinnedLog }): EvidenceTrust;
export function readTrust(options: PinnedOptions): EvidenceTrust | null;
export function readTrust({ pins, maxAgeMs }: PinnedOptions): EvidenceTrust | null {
  const log = withPins(() => readLog(crypto.sha256, pins));
  if (maxAgeMs !== undefined && (log === null || !(maxAgeMs >= 0))) {
    throw new SdkError('invalid_input', 'maxAgeMs needs pins, and must be at least 0');
  }
  return log && { log, maxAgeMs };
}

/**
 * The answer that evidence proves. Throws `evidence_rejected`, and `evidence_outdated` for an answer that
 * no longer holds.
 */
export function recompute(
  evidence: TextOrBytes | object,
  identifier: string,
  route: VerdictRoute,
  { log, maxAgeMs }: EvidenceTrust,
) {
  const options = { identifier, log, maxAgeMs, now: Date.now() };
  const { state, answer } = rejecting(() => proveAnswer(crypto, evidence, route, options));
  const { snapshot } = state;
  return {
    state,
    answer,
    snapshot: {
      tree_size: snapshot.logs[0]!.size,
      generation: state.index,
      issued_at: snapshot.time,
    },
    proved: provedOf(state),
  };
}

export function rejecting<T>(check: () => T): T {
  try {
    return check();
  } catch (cause) {
    if (!(cause instanceof ProtocolError)) throw cause;
    const { code: fault, message, pointer } = cause;
    const details = { fault, pointer, cause };
    if (fault === 'evidence_expired' || fault === 'evidence_too_old') {
      throw new SdkError('evidence_outdated', message, details);
    }
    throw new SdkError('evidence_rejected', `the evidence is rejected: ${message}`, details);
  }
}

function provedOf(state: ProvedState): Proved {
  const { found, snapshot, key, checkpoint, witnesses } = state;
  return {
    proofs: [...found.proofs].map(([proof_id, proof]) => ({ proof_id, found: proof !== null })),
    time: snapshot.time,
    valid_until: snapshot.valid_until,
    age_ms: state.ageMs,
    log_index: state.index,
    log_size: checkpoint.size,
    trusted: { log_origin: checkpoint.origin, log_key_id: toHex(key.keyHash), witnesses },
  };
}
