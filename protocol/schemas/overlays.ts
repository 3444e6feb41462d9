import * as z from 'zod';
import { SCHEMA } from './ids.js';
import { effectSchema, hashSchema, pageOf, timeSchema } from './primitives.js';

export const MOST_RULES = 32;

const rulesSchema = z
  .record(z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'expected a rule id'), z.string().min(1))
  .refine((rules) => {
    const count = Object.keys(rules).length;
    return count >= 1 && count <= MOST_RULES;
  }, `expected 1 to ${MOST_RULES} rules`)
  .describe('The Cedar text of each rule, by rule id; each text is one `forbid` policy.');

/** Body of `POST /v1/overlays`. */
export const overlayRequestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.overlayRequest),
  rules: rulesSchema,
});

const listedOverlaySchema = z.strictObject({
  overlay_id: hashSchema,
  rules: rulesSchema,
  active: z.boolean(),
  /** Ids of rules that are not valid under the policy set in force; in an active overlay, each denies every action. */
  unfit_rules: z.array(z.string()),
  created_at: timeSchema,
});

/** Answer of `POST /v1/overlays`, and of an activation. */
export const overlaySchema = z.strictObject({
  schema_version: z.literal(SCHEMA.overlay),
  ...listedOverlaySchema.shape,
});
export type Overlay = z.infer<typeof overlaySchema>;

/** Answer of `GET /v1/overlays`, newest first. */
export const overlayListSchema = pageOf(SCHEMA.overlayList, {
  overlays: z.array(listedOverlaySchema),
});
export type OverlayList = z.infer<typeof overlayListSchema>;

const decisionSchema = z.strictObject({ effect: effectSchema, reasons: z.array(z.string()) });
const countSchema = z.int().min(0);

/** Answer of `POST /v1/overlays/{overlay_id}/test`. */
export const overlayTestSchema = z.strictObject({
  schema_version: z.literal(SCHEMA.overlayTest),
  overlay_id: hashSchema,
  /** Digest of the policy set in force, combined with this overlay. */
  policy_digest: hashSchema,
  cases: z
    .strictObject({
      failed: countSchema,
      /** How many cases each rule decides, by its policy id. */
      covered: z.record(z.string(), countSchema),
      results: z.array(
        z.strictObject({
          name: z.string(),
          action: z.string(),
          expected: z.strictObject({
            effect: effectSchema,
            reasons: z.array(z.string()).nullable(),
          }),
          decided: decisionSchema,
          passed: z.boolean(),
        }),
      ),
    })
    .nullable(),
  simulation: z
    .strictObject({
      since: timeSchema,
      /** Whether all admissions since `since` were evaluated; false if only the newest of these were. */
      complete: z.boolean(),
      admissions: countSchema,
      unchanged: countSchema,
      denied: countSchema,
      approval_required: countSchema,
      admitted: countSchema,
      /** Admissions whose effect equals the recorded effect, but whose reasons differ from the recorded reasons. */
      reasons: countSchema,
      erased: countSchema,
      changes: z.array(
        z.strictObject({
          proof_id: z.string(),
          action: z.string(),
          recorded: z.string(),
          simulated: z.string(),
        }),
      ),
    })
    .nullable(),
});
export type OverlayTest = z.infer<typeof overlayTestSchema>;
