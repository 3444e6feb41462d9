import { afterAll, beforeAll, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { ID_PREFIX, type IdField } from '#protocol/ids';
import { facadeSchema } from '#protocol/schemas/facade';
import type { Publisher } from '#publisher/publisher';
import type { HttpServer } from '#runtime/http/server';
import { callAt, postLookup, type Reply } from '../../fixtures/public-call.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

/** Entries; the last four are of other types. */
const WINDOW = 6;
const snapshot = new TestSnapshot();
const { registry } = snapshot;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
/** Proof ids in log order; the entries of other kinds between them do not count. */
const proofs: string[] = [];
/** Each indexed by the number of its proof or newest member. */
const tokens: string[] = [];
const packages: string[] = [];
const packageTokens: string[] = [];

function addProof(): void {
  const number = proofs.push(registry.addProof()) - 1;
  tokens.push(registry.share('proof', proofs[number]!));
  // The newest member is deliberately not the last in the list.
  packages.push(registry.bundle([...new Set([proofs[number]!, proofs[0]!])]));
  packageTokens.push(registry.share('package', packages[number]!));
}

async function republish(): Promise<void> {
  registry.verify();
  await publisher.runCycle();
  await publicServer.poller.refresh();
}

beforeAll(async () => {
  for (let i = 0; i < 6; i++) addProof();
  registry.revoke(proofs[1]!);
  registry.addKeyEntry('retire');
  publisher = snapshot.publisher({ recentLookupLimit: WINDOW });
  publicServer = snapshot.publicServer();
  server = await snapshot.serve(publicServer);
  await republish();
});
afterAll(() => snapshot.close());

const FIELDS = [
  'proof_id',
  'registry_entry_id',
  'execution_id',
  'certificate_id',
  'passport_id',
  'trust_id',
  'trust_asset_id',
] satisfies IdField[];
/** The nine kinds of identifiers that the generic lookup resolves, by the index of their proof. */
const IDS: [field: string, id: (number: number) => string][] = [
  ...FIELDS.map((field): (typeof IDS)[number] => [
    field,
    (number) => ID_PREFIX[field] + proofs[number]!,
  ]),
  ['share_token', (number) => tokens[number]!],
  ['share_token', (number) => packageTokens[number]!],
  ['package_id', (number) => packages[number]!],
];
/** Kinds of identifiers without a member of their own in the body of a POST. */
const NO_FIELD = ['registry_entry_id', 'execution_id'];

function matchedOn(reply: Reply): string | null {
  expect(reply.status).toBe(200);
  const body = facadeSchema.parse(reply.body);
  if (body.lookup.matched_on === null) {
    expect(body.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
  }
  return body.lookup.matched_on;
}

/** The distinct results of all generic lookups of an identifier. */
async function generic(field: string, id: string, from = server): Promise<(string | null)[]> {
  const replies = await Promise.all([
    ...['identifier', 'q', 'id'].map((name) => callAt(from, `/api/public/verify?${name}=${id}`)),
    postLookup(from, { identifier: id }),
    ...(NO_FIELD.includes(field) ? [] : [postLookup(from, { [field]: id })]),
  ]);
  return [...new Set(replies.map(matchedOn))];
}

const isRecent = (number: number): boolean => {
  const { lookup_from } = publicServer.poller.current!.log;
  return (
    registry.all.findIndex((leaf) => 'proofId' in leaf && leaf.proofId === proofs[number]) >=
    lookup_from
  );
};

it.each(IDS)('generic lookup > resolves %s only for recent proofs', async (field, id) => {
  const recent = [...proofs.keys()].filter(isRecent);
  expect(recent).toEqual([4, 5]);
  for (const number of proofs.keys()) {
    expect(await generic(field, id(number))).toEqual([isRecent(number) ? field : null]);
    expect(matchedOn(await callAt(server, `/api/public/verify/proof/${proofs[number]}`))).toBe(
      'proof_id',
    );
  }
});

it('generic lookup > does not resolve an old proof again because of a new entry about it', async () => {
  registry.revoke(proofs[0]!, 'trust');
  await republish();
  expect(await generic('proof_id', proofs[0]!)).toEqual([null]);
  expect(await generic('package_id', packages[0]!)).toEqual([null]);
});
