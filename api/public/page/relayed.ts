import { z } from 'zod';
import { artifactKindSchema, effectSchema, environmentSchema } from '#protocol/schemas/primitives';
import { notFoundSchema } from '#protocol/schemas/lookup';
import { canAssertValidity, STATUSES } from '#protocol/status';
import type { Answer } from '../http/answer.js';

/**
 * What the page shows of a lookup's answer. It has to know every word that decides what a reader
 * is told: an answer with a status or an effect that it does not know is shown as no answer at all.
 */
const relayedSchema = z.object({
  artifact_kind: artifactKindSchema,
  lookup: z.object({ matched_on: z.string().nullable() }),
  verification: z
    .object({
      verification_status: z.enum(STATUSES),
      can_assert_validity: z.boolean(),
      verified_at: z.string().optional(),
    })
    .refine(
      (told) => told.can_assert_validity === canAssertValidity(told.verification_status),
      'can_assert_validity does not follow from the status',
    ),
  artifact: z
    .object({
      effect: effectSchema,
      environment: environmentSchema,
      aep_hash: z.string(),
      proof_record_hash: z.string(),
    })
    .partial(),
  trust_chain: z.object({ available: z.boolean(), sequence: z.array(z.string()) }),
  references: z.record(z.string(), z.unknown()),
  downloads: z.record(z.string(), z.unknown()),
  integrity: z
    .object({
      log_origin: z.string(),
      leaf_index: z.number(),
      key_id: z.string(),
      accepted_at: z.string(),
    })
    .partial(),
});
export type Relayed = z.infer<typeof relayedSchema>;

/** Reads the answer that the JSON route would have sent; null is the not-found record. */
export function readAnswer(answer: Answer): Relayed | null {
  const { body } = answer;
  const bytes = typeof body === 'string' ? Buffer.from(body, 'latin1') : Buffer.from(body);
  // Not strictly: it is our own text, and may hold whatever somebody asked for.
  const document: unknown = JSON.parse(bytes.toString('utf8'));
  if (answer.status === 404) {
    notFoundSchema.parse(document);
    return null;
  }
  return relayedSchema.parse(document);
}

export function stringsIn(record: Record<string, unknown>): [name: string, value: string][] {
  return Object.entries(record).flatMap(([name, value]) =>
    [value]
      .flat()
      .flatMap((one): [string, string][] => (typeof one === 'string' ? [[name, one]] : [])),
  );
}
