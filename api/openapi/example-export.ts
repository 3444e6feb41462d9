import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { proofExportSchema } from '#protocol/schemas/proof-export';
import { packageRoot } from '#runtime/process/files';

const VECTOR = join(packageRoot, 'protocol/vectors/proof-export.json');

const { document } = JSON.parse(readFileSync(VECTOR, 'utf8')) as { document: unknown };

/** Source of the documentation examples: a test vector, in which every hash and signature verifies. */
export const exampleExport = proofExportSchema.parse(document);

export const EXAMPLE_PROOF_ID = exampleExport.proof_id;
