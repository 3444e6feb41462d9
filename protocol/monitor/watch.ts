import * as z from 'zod';
import type { Sha256 } from '../hash.js';
import { lookupsOf, type FoundProof } from '../evidence/lookups.js';
import { attempt } from '../errors.js';
import { parseStrict } from '../json.js';
import type { ProofId } from '../ids.js';
import type { MapValue } from '../map/page.js';
import { readSigned, type SignedDocument } from '../offline/read.js';
import { SCHEMA } from '../schemas/ids.js';
import { hashSchema, proofIdSchema } from '../schemas/primitives.js';

export interface Watched {
  proofId: ProofId;
  /** Whether the service promised that the log has the proof. */
  isPromised: boolean;
  /** When the watched file was written, in milliseconds since 1970: a promise in it existed by then. */
  at: number;
  aepHash?: string | undefined;
  /** The checkpoint in the watched document: a note, or a tlog-proof that contains the note. */
  checkpoint?: string | null | undefined;
  /** The promise with its signature, which an AEP key of the log must have made. */
  signed?: SignedDocument;
  /** Why the document proves nothing. */
  fault?: string;
}

const entrySchema = z.object({ proof_id: proofIdSchema, aep_hash: hashSchema });
const documentSchema = z.union([
  z
    .object({ registry_proof_id: proofIdSchema })
    .transform(({ registry_proof_id }) => ({ proofId: registry_proof_id })),
  z
    .object({
      entry: entrySchema,
      tlog_proof: z.string().nullish(),
      inclusion: z.object({ checkpoint: z.string() }).nullish(),
    })
    .transform(({ entry, inclusion, tlog_proof }) => ({
      proofId: entry.proof_id,
      aepHash: entry.aep_hash,
      checkpoint: tlog_proof ?? inclusion?.checkpoint,
    })),
]);
const signedSchema = z.object({
  schema_version: z.enum([SCHEMA.receiptEvidence, SCHEMA.proofExport]),
});

/**
 * The proofs of a file: a receipt, its evidence, an export, another document with the log entry of a
 * proof, or proof ids, one on each line. Undefined for any other file.
 *
 * @param at when the file was written, in milliseconds since 1970
 */
export function parseWatched(
  sha256: Sha256,
  bytes: Uint8Array,
  text: string,
  at: number,
): Watched[] | undefined {
  const value = attempt(() => parseStrict(bytes));
  const document = documentSchema.safeParse(value).data;
  if (document !== undefined) {
    const promise = { ...document, isPromised: true, at };
    if (!signedSchema.safeParse(value).success) return [promise];
    const read = readSigned(value, sha256);
    return [
      'fault' in read
        ? { ...promise, fault: `${read.fault.code}: ${read.fault.detail}` }
        : { ...promise, signed: read.document },
    ];
  }
  const ids = text.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('#'));
  const parsed = z
    .array(proofIdSchema)
    .min(1)
    .safeParse(ids.map((line) => line.trim())).data;
  return parsed?.map((proofId) => ({ proofId, isPromised: false, at }));
}

/** The records of a proof in a map; null if the map does not have the proof. */
export async function findProof(
  sha256: Sha256,
  find: (key: Uint8Array) => Promise<MapValue | null>,
  proofId: ProofId,
): Promise<FoundProof | null> {
  const queries = lookupsOf(sha256, proofId);
  let step = queries.next();
  while (step.done !== true) step = queries.next(await find(step.value.key));
  return step.value.proofs.get(proofId) ?? null;
}
