import './jitless.js';
import { nobleVerify } from '#protocol/ed25519';
import { answerStatus, proveAnswer, requireAgreement } from '#protocol/evidence/answer';
import type { ProvedState } from '#protocol/evidence/verify';
import { nobleSha256 } from '#protocol/hash';
import { BY_PATH, pathLookupOf, QUERY_NAMES, routeFor } from '#protocol/lookup-routes';
import { readLog } from '#protocol/offline/trust';
import { SCHEMA } from '#protocol/schemas/ids';
import { formatAge } from '#protocol/time';

const TRUSTED =
  'Trusted without proof: this key; the verdicts in its log; that its log is the same for all readers, which no ' +
  'witness confirmed; the clock of this device; and this page with its script, which the server sent.';

const crypto = { sha256: nobleSha256, verify: nobleVerify };
const TIMEOUT_MS = 15_000;
/** Maximum number of requests for evidence of the shown snapshot: another server may still have an older one. */
const MAX_ROUNDS = 5;
const PAUSE_MS = 1_000;

export interface ShownVerdict {
  /** The lookup response, as JSON text. */
  answer: string;
  status: string;
  generation: number;
}

/** Sentences for the page: the proved facts, and the parties that the reader still trusts. */
export interface Proved {
  proved: string;
  trusted: string;
}

/** Throws unless evidence of the pinned log proves exactly what the page shows. */
export async function proveVerdict(vkey: string, shown: ShownVerdict): Promise<Proved> {
  const log = readLog(crypto.sha256, { vkey, origin: vkey.split('+')[0]! })!;
  // Takes the identifier from the URL, as the server does, because the page could show a different one.
  const parameters = new URLSearchParams(location.search);
  const identifier = QUERY_NAMES.flatMap((name) => parameters.getAll(name))[0]!.trim();
  const path = pathLookupOf(identifier);
  const route = path === null ? routeFor('identifier') : BY_PATH[path];
  for (let round = 1; ; round++) {
    const evidence = await fetchEvidence(identifier);
    const { state, answer } = proveAnswer(crypto, evidence, route, {
      identifier,
      log,
      now: Date.now(),
    });
    const status = answerStatus(answer.response);
    try {
      if (shown.status !== status) throw new Error(`the page shows ${shown.status}`);
      const served: unknown = JSON.parse(shown.answer);
      requireAgreement(answer.response, served);
      // The page may show any member, so the served answer must have no member that is not proved.
      requireAgreement(served, answer.response);
    } catch (cause) {
      if (state.index < shown.generation && round < MAX_ROUNDS) {
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        continue;
      }
      throw new Error(contradiction(status, state, shown), { cause });
    }
    return { proved: provedText(status, state), trusted: TRUSTED };
  }
}

/** Sends a POST: a share token must not appear in a URL. */
async function fetchEvidence(identifier: string): Promise<Uint8Array> {
  const response = await fetch('/api/public/evidence', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ schema_version: SCHEMA.lookupRequest, identifier }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch((cause: unknown) => {
    throw new Error('the evidence could not be fetched, because the server cannot be reached', {
      cause,
    });
  });
  if (!response.ok) throw new Error(`the server sent no evidence (HTTP ${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

function contradiction(status: string, state: ProvedState, { generation }: ShownVerdict): string {
  const reload = state.index > generation ? '; the page may be outdated: reload it' : '';
  return `this page contradicts the log, which proves the status ${status} at ${state.snapshot.time}${reload}`;
}

function provedText(status: string, { found, index, ageMs }: ProvedState): string {
  const proofs = [...found.proofs.values()];
  const present = proofs.filter((proof) => proof !== null).length;
  const counts = `proofs found: ${present}, absent: ${proofs.length - present}`;
  return `status ${status}; ${counts}; snapshot at log entry ${index}, ${formatAge(ageMs)} old.`;
}
