import type { PublicEvent } from '#protocol/schemas/proof-view';
import {
  type Facade,
  facadeSchema,
  notFoundSchema,
  type PublicTrustChain,
} from '#protocol/schemas/facade';
import { assertsByStatus } from '#protocol/schemas/primitives';
import { isReportAnswer } from '#protocol/status';
import type { Answer } from '../http/answer.js';

/** An unknown status or effect is an error: the page never guesses a verdict. */
const relayedSchema = facadeSchema
  .refine(
    ({ artifact, references }) => 'package_id' in artifact === 'members' in references,
    'a package without members, or members without a package',
  )
  .refine(
    ({ references }) => membersIn({ references })?.every(assertsByStatus) ?? true,
    'can_assert_validity of a member does not follow from its status',
  );

/** The members of all alternatives of a union, as optional members. */
type AnyOf<U, Some = Exclude<U, Record<string, never>>> = {
  [K in KeyOf<Some>]?: Some extends unknown ? (K extends keyof Some ? Some[K] : never) : never;
};
type KeyOf<U> = U extends unknown ? keyof U : never;
type References = Extract<Facade['references'], { members: unknown }>;
/** One proof in a package, and the verdict on its trust artifact. */
export type Member = References['members'][number];

/** A lookup response. */
export interface Relayed extends Omit<Facade, 'artifact' | 'references' | 'integrity'> {
  artifact: AnyOf<Facade['artifact']>;
  references: Record<string, unknown> & Partial<Pick<References, 'members'>>;
  integrity: AnyOf<Facade['integrity']>;
}

export function textOf({ body }: Pick<Answer, 'body'>): string {
  const bytes = typeof body === 'string' ? Buffer.from(body, 'latin1') : Buffer.from(body);
  return bytes.toString('utf8');
}

/** Parses a response of the JSON route; null for the not-found record. */
export function readAnswer(answer: Pick<Answer, 'status' | 'body'>): Relayed | null {
  // Not parseStrict, which would reject some texts of clients that `requested` echoes.
  const document: unknown = JSON.parse(textOf(answer));
  if (answer.status === 404) {
    notFoundSchema.parse(document);
    return null;
  }
  return relayedSchema.parse(document);
}

/** Whether the proof records an outcome or the close of a run. */
export function isReport({ artifact, references }: Relayed): boolean {
  return isReportAnswer(artifact, references);
}

/** The members of a package; null for any other artifact. */
export function membersIn({ references }: Pick<Relayed, 'references'>): Member[] | null {
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
  /** The lookup response; null for the not-found record. */
  relayed: Relayed | null;
  events: PublicEvent[];
  /** One link for each stage of the chain; empty when the artifact has no views. */
  links: PublicTrustChain['links'];
}
