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

/** One check: `detail` says what was found, for people. */
export const checkSchema = z.strictObject({
  name: z.enum(CHECK_NAMES),
  result: z.enum(['pass', 'fail', 'not_applicable']),
  detail: z.string().exactOptional(),
});
export type Check = z.infer<typeof checkSchema>;
export type CheckName = Check['name'];

/** What the verifier writes down about one proof. */
export const verdictSchema = z.strictObject({
  outcome: z.enum(['pass', 'fail', 'expired']),
  checks: z.array(checkSchema),
});
export type Verdict = z.infer<typeof verdictSchema>;
