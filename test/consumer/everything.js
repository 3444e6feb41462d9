// Exercises the installed SDK in Node and in a browser. It is copied into an empty project, so it
// imports only the package and a file in its folder.
import {
  canonicalJson,
  executeIntentHttp,
  exportProofHttp,
  getProofInclusionHttp,
  readProofHttp,
  SdkError,
  verifyOffline,
  verifyTlogProof,
} from '@svc-proofs/sdk';
import { outcomeOf } from './vector.js';

/** Repeats a call only while the engine is not ready. */
async function whenReady(call) {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof SdkError) || error.code !== 'not_ready') throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

async function codeOf(call) {
  try {
    await call();
    return null;
  } catch (error) {
    return error instanceof SdkError ? error.code : String(error);
  }
}

/** Admits, reads, exports, and verifies offline. */
async function live({ engine, trust, intentId }) {
  const receipt = await executeIntentHttp(engine, {
    intent_id: intentId,
    action: 'BOOK_RESERVATION',
  });
  const proof = { proof_id: receipt.registry_proof_id };
  const exported = (await whenReady(() => exportProofHttp(engine, proof))).response;
  const text = canonicalJson(exported);
  const tlogProof = await whenReady(() =>
    getProofInclusionHttp(engine, { ...proof, format: 'tlog-proof' }),
  );
  const entry = canonicalJson(exported.entry);
  const { authentic, included, status, aep } = verifyOffline(text, trust);
  const forged = verifyOffline(text.replaceAll('BOOK_RESERVATION', 'DELETE_AUDIT_LOG'), trust);
  return {
    proofId: proof.proof_id,
    receiptStatus: receipt.status,
    read: (await readProofHttp(engine, proof)).response.proof_id,
    offline: { authentic, included, status, action: aep?.subject.action },
    tlogProof: verifyTlogProof(tlogProof.response, entry, trust).included,
    forged: forged.faults[0]?.code,
    unpinned: verifyOffline(text, { aepKeys: [] }).cause,
    denied: await codeOf(() =>
      executeIntentHttp(engine, { intent_id: `${intentId}-denied`, action: 'DELETE_AUDIT_LOG' }),
    ),
  };
}

const api = {
  verifyOffline,
  verifyTlogProof,
  pinErrorOf: (error) => {
    if (error instanceof SdkError && error.code === 'unusable_pin') return error.pin;
    throw error;
  },
};

export async function everything({ vectors, ...settings }) {
  return {
    live: await live(settings),
    outcomes: Object.fromEntries(vectors.map((vector) => [vector.name, outcomeOf(vector, api)])),
  };
}
