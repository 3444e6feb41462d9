import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { ID_PREFIX, type IdField } from '#protocol/ids';
import { facadeSchema } from '#protocol/schemas/facade';
import type { ArtifactKind } from '#protocol/status';
import type { Publisher } from '#publisher/publisher';
import type { HttpServer } from '#runtime/http/server';
import { callAt, postLookup, type Reply } from '../../fixtures/public-call.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

const WINDOW = 3;
const snapshot = new TestSnapshot();
const { registry } = snapshot;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
/** In log order; key and status entries are between them, which do not count. */
const proofs: string[] = [];
/** By the number of the proof that they show. */
const tokens: Record<ArtifactKind, string>[] = [];
/** By the number of their newest member. */
const packages: string[] = [];
const packageTokens: string[] = [];

function addProof(): void {
  const number = proofs.push(registry.addProof()) - 1;
  const proof = proofs[number]!;
  tokens.push({
    proof: registry.share('proof', proof),
    passport: registry.share('passport', proof),
    certificate: registry.share('certificate', proof),
    trust: registry.share('trust', proof),
  });
  // The newest member is not the last in the list.
  packages.push(registry.bundle(number === 0 ? [proof] : [proof, proofs[0]!]));
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

/** The nine kinds of identifiers of the generic lookup: the one that belongs to a proof, by its number. */
const IDS: [field: string, id: (number: number) => string][] = [
  ...(
    [
      'proof_id',
      'registry_entry_id',
      'execution_id',
      'certificate_id',
      'passport_id',
      'trust_id',
      'trust_asset_id',
    ] satisfies IdField[]
  ).map((field): (typeof IDS)[number] => [field, (number) => ID_PREFIX[field] + proofs[number]!]),
  ['share_token', (number) => tokens[number]!.proof],
  ['share_token', (number) => tokens[number]!.passport],
  ['share_token', (number) => tokens[number]!.certificate],
  ['share_token', (number) => tokens[number]!.trust],
  ['share_token', (number) => packageTokens[number]!],
  ['package_id', (number) => packages[number]!],
];
/** Kinds of identifiers that a body has no field of its own for. */
const NO_FIELD = ['registry_entry_id', 'execution_id'];

function matchedOn(reply: Reply): string | null {
  expect(reply.status).toBe(200);
  const body = facadeSchema.parse(reply.body);
  if (body.lookup.matched_on === null) {
    expect(body.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(body.artifact_kind).toBe('proof');
  }
  return body.lookup.matched_on;
}

async function generic(field: string, id: string, from = server): Promise<(string | null)[]> {
  const replies = [
    ...['identifier', 'q', 'id'].map((name) => callAt(from, `/api/public/verify?${name}=${id}`)),
    postLookup(from, { identifier: id }),
    ...(NO_FIELD.includes(field) ? [] : [postLookup(from, { [field]: id })]),
  ];
  return (await Promise.all(replies)).map(matchedOn);
}

describe('generic lookup over three recent proofs', () => {
  it.each(IDS)('resolves %s only for the recent proofs', async (field, id) => {
    for (const number of proofs.keys()) {
      const isInside = number >= proofs.length - WINDOW;
      const found = new Set(await generic(field, id(number)));
      expect([...found]).toEqual([isInside ? field : null]);
    }
  });

  it('agrees with the path lookups, which cover the whole history', async () => {
    const paths: [path: string, id: (number: number) => string][] = [
      ['proof', (number) => proofs[number]!],
      ['certificate', (number) => `cert_${proofs[number]!}`],
      ['certificate', (number) => `certref_${proofs[number]!}`],
      ['certificate', (number) => `asset_${proofs[number]!}`],
      ['passport', (number) => `pass_${proofs[number]!}`],
      ['passport', (number) => `passref_${proofs[number]!}`],
      ['passport', (number) => `execpass_${proofs[number]!}`],
      ['trust', (number) => `trust_${proofs[number]!}`],
      ['trust', (number) => `trustref_${proofs[number]!}`],
      ['trust', (number) => `asset_${proofs[number]!}`],
      ['trust-asset', (number) => `asset_${proofs[number]!}`],
      ['share', (number) => tokens[number]!.proof],
      ['share', (number) => tokens[number]!.passport],
      ['share', (number) => tokens[number]!.certificate],
      ['share', (number) => tokens[number]!.trust],
      ['share', (number) => packageTokens[number]!],
      ['package', (number) => packages[number]!],
    ];
    for (const number of proofs.keys()) {
      for (const [path, id] of paths) {
        const reply = await callAt(server, `/api/public/verify/${path}/${id(number)}`);
        expect(matchedOn(reply)).not.toBeNull();
        if (number < proofs.length - WINDOW) continue;
        const same = await callAt(server, `/api/public/verify?q=${id(number)}`);
        // The generic lookup is one of the routes for this id.
        if (path === 'certificate' && id(number).startsWith('asset_')) continue;
        if (/^(?:certref|passref|execpass|trustref)_/.test(id(number))) {
          expect(matchedOn(same)).toBeNull();
          continue;
        }
        expect(same.text).toBe(reply.text);
      }
      for (const path of ['certificate/cert_', 'passport/pass_', 'trust/trust_']) {
        for (const end of ['', path.startsWith('trust') ? '/package' : '/history']) {
          const { body } = await callAt(server, `/api/public/${path}${proofs[number]!}${end}`);
          expect(body).toMatchObject({ lookup: { matched_on: expect.any(String) as string } });
        }
      }
    }
  });

  it('moves its limit only with new proofs', async () => {
    const edge = proofs.length - WINDOW;
    registry.revoke(proofs[0]!, 'trust');
    await republish();
    expect(new Set(await generic('proof_id', proofs[edge]!))).toEqual(new Set(['proof_id']));
    // A new verdict on an old proof or package does not make it recent.
    expect(new Set(await generic('proof_id', proofs[0]!))).toEqual(new Set([null]));
    expect(new Set(await generic('package_id', packages[0]!))).toEqual(new Set([null]));
    addProof();
    await republish();
    for (const [field, id] of IDS) {
      expect(new Set(await generic(field, id(edge)))).toEqual(new Set([null]));
      expect(new Set(await generic(field, id(edge + 1)))).toEqual(new Set([field]));
    }
  });

  it.each([
    [1, 1],
    [2, 2],
    [0, 0],
    [99, WINDOW],
  ])('uses the lower limit of the server: of %i proofs, %i', async (wanted, width) => {
    const from = await snapshot.serve(snapshot.publicServer({ recentLookupLimit: wanted }));
    for (const number of proofs.keys()) {
      const expected = number >= proofs.length - width ? 'proof_id' : null;
      expect(new Set(await generic('proof_id', proofs[number]!, from))).toEqual(
        new Set([expected]),
      );
      const direct = await callAt(from, `/api/public/verify/proof/${proofs[number]!}`);
      expect(matchedOn(direct)).toBe('proof_id');
    }
  });
});
