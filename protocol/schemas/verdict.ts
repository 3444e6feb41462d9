import { z } from 'zod';

/** Every check of a proof, in the order in which they are made. */
export const CHECK_NAMES = [
  'request_hash',
  'aep_canonical',
  'aep_schema',
  'aep_identity',
  'aep_hash',
  'signing_key',
  'signature',
  'proof_record_hash',
  'log_entry',
  'inclusion',
] as const;

/** Made of a registry's row besides: what is published beside the entry is what the AEP says. */
export const ROW_CHECK_NAME = 'published_columns';

/** One check: `detail` says what was found, for people. */
export const checkSchema = z.strictObject({
  name: z.enum([...CHECK_NAMES, ROW_CHECK_NAME]),
  result: z.enum(['pass', 'fail', 'not_applicable']),
  detail: z.string().exactOptional(),
});
export type Check = z.infer<typeof checkSchema>;
export type CheckName = Check['name'];
