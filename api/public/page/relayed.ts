import * as z from 'zod';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { type PublicTrustChain, notFoundSchema } from '#protocol/schemas/facade';
import {
  artifactKindSchema,
  assertsByStatus,
  effectSchema,
  environmentSchema,
} from '#protocol/schemas/primitives';
import { isOutcomeAnswer, STATUSES } from '#protocol/status';
import type { Answer } from '../http/answer.js';

const verdictMembers = { verification_status: z.enum(STATUSES), can_assert_validity: z.boolean() };
const DOES_NOT_FOLLOW = 'can_assert_validity does not follow from the status';

/** One proof in a package, and the verdict on its trust artifact. */
const memberSchema = z
  .object({ proof_id: z.string(), trust_id: z.string(), ...verdictMembers })
  .refine(assertsByStatus, DOES_NOT_FOLLOW);
export type Member = z.infer<typeof memberSchema>;

/**
 * The members of a lookup response that the page shows. Parsing fails on an unknown status or effect:
 * the page then reports an error and never guesses a verdict.
 */
const relayedSchema = z
  .object({
    artifact_kind: artifactKindSchema,
    lookup: z.object({ matched_on: z.string().nullable() }),
    verification: z
      .object({ ...verdictMembers, verified_at: z.string().optional() })
      .refine(assertsByStatus, DOES_NOT_FOLLOW),
    artifact: z
      .object({
        effect: effectSchema,
        environment: environmentSchema,
        aep_hash: z.string(),
        proof_record_hash: z.string(),
        package_id: z.string(),
      })
      .partial(),
    trust_chain: z.object({ available: z.boolean(), sequence: z.array(z.string()) }),
    references: z.looseObject({ members: z.array(memberSchema).min(1).optional() }),
    downloads: z.record(z.string(), z.unknown()),
    integrity: z
      .object({
        log_origin: z.string(),
        leaf_index: z.number(),
        key_id: z.string(),
        accepted_at: z.string(),
        members_hash: z.string(),
      })
      .partial(),
  })
  .refine(
    ({ artifact, references }) =>
      (artifact.package_id === undefined) === (references.members === undefined),
    'a package without members, or members without a package',
  );
export type Relayed = z.infer<typeof relayedSchema>;

export function textOf({ body }: Pick<Answer, 'body'>): string {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'latin1') : Buffer.from(body);
  return bytes.toString('utf8');
}

/** Parses a response of the JSON route; null for the not-found record. */
export function readAnswer(answer: Pick<Answer, 'status' | 'body'>): Relayed | null {
  // parseStrict would reject some client text, which `requested` echoes.
  const document: unknown = JSON.parse(textOf(answer));
  if (answer.status === 404) {
    notFoundSchema.parse(document);
    return null;
  }
  return relayedSchema.parse(document);
}

/** Whether the proof records an outcome: its effect is ADMIT, but it has no certificate. */
export function isOutcome({ artifact, references }: Relayed): boolean {
  return isOutcomeAnswer(artifact, references);
}

/** The members of a package; null for any other artifact. */
export function membersIn({ references }: Relayed): Member[] | null {
  return references.members ?? null;
}

/** The public id of the resolved artifact, also when a share token led to it. */
export function ownId({ artifact_kind: kind, artifact, references }: Relayed): string | null {
  const id = artifact.package_id ?? references[`${kind}_id`];
  return typeof id === 'string' ? id : null;
}

export function wasShared({ lookup }: Relayed): boolean {
  return lookup.matched_on === 'share_token';
}

export function stringsIn(record: Record<string, unknown>): [name: string, value: string][] {
  return Object.entries(record).flatMap(([name, value]) =>
    [value]
      .flat()
      .flatMap((one): [string, string][] => (typeof one === 'string' ? [[name, one]] : [])),
  );
}

/** The verdict on one identifier and the views of the artifact. */
export interface PageModel {
  /** Null for the not-found record. */
  relayed: Relayed | null;
  events: PublicEvent[];
  /** One link for each stage of the chain; empty when the artifact has no views. */
  links: PublicTrustChain['links'];
}
