import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { facadeSchema, type Facade as FacadeBody } from '#protocol/schemas/facade';
import type { Publisher } from '#publisher/publisher';
import type { HttpServer } from '#runtime/http/server';
import { callAt, postLookup, type Reply } from '../../fixtures/public-call.js';
import { proofIdAt, TestSnapshot } from '../../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
const { registry } = snapshot;
let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;
let good: string[];
let established: string;

beforeAll(async () => {
  good = registry.addProofs(3);
  established = registry.bundle([good[2]!, good[0]!]);
  publisher = snapshot.publisher();
  publicServer = snapshot.publicServer();
  registry.verify();
  await publisher.runCycle();
  server = await snapshot.serve(publicServer);
});
afterAll(() => snapshot.close());

const call = (path: string, headers = {}): Promise<Reply> => callAt(server, path, { headers });

async function republish(): Promise<void> {
  await publisher.runCycle();
  await publicServer.poller.refresh();
}

async function lookUp(packageId: string): Promise<FacadeBody> {
  const reply = await call(`/api/public/verify/package/${packageId}`);
  expect(reply.status).toBe(200);
  const body = facadeSchema.parse(reply.body);
  expect(body).toEqual(reply.body);
  return body;
}

function expectUnresolved(body: unknown, kind: string, requested: string): void {
  expect(facadeSchema.parse(body)).toMatchObject({
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    artifact: {},
    references: {},
    verification: { verification_status: 'BACKEND_LOOKUP_REQUIRED', can_assert_validity: false },
  });
}

describe('package lookup response', () => {
  it('is a trust artifact with its members in order', async () => {
    const body = await lookUp(established);
    expect(body).toMatchObject({
      artifact_kind: 'trust',
      identifier: established,
      lookup: { requested: established, matched_on: 'package_id' },
      artifact: { package_id: established, members: 2, effect: 'ADMIT', environment: 'sandbox' },
      verification: {
        verification_status: 'TRUST_ESTABLISHED',
        can_assert_validity: true,
        frontend_recomputed: false,
      },
      mutation_allowed: false,
      serves_authoritative_truth: false,
      references: {
        package_id: established,
        members: [good[2], good[0]].map((proof_id) => ({
          proof_id,
          trust_id: `trust_${proof_id}`,
          verification_status: 'TRUST_ESTABLISHED',
          can_assert_validity: true,
        })),
      },
    });
  });

  it('has for each member the verdict of the member lookup', async () => {
    const body = await lookUp(established);
    const { members } = body.references as { members: { trust_id: string }[] };
    for (const { trust_id, ...verdict } of members) {
      const reply = await call(`/api/public/verify/trust/${trust_id}`);
      const { verification } = facadeSchema.parse(reply.body);
      expect(verdict).toMatchObject({
        verification_status: verification.verification_status,
        can_assert_validity: verification.can_assert_validity,
      });
    }
  });

  it('names downloads that work', async () => {
    const { downloads } = await lookUp(established);
    const urls = Object.values(downloads).flat();
    expect(urls.length).toBeGreaterThan(0);
    for (const url of urls) expect((await call(url)).status).toBe(200);
  });

  it('updates with its members from snapshot to snapshot', async () => {
    const [first, second] = registry.addProofs(2);
    const both = registry.bundle([first!, second!]);
    const alone = registry.bundle([second!]);
    registry.verify();
    await republish();
    const path = `/api/public/verify/package/${both}`;
    const before = await call(path);
    const statuses = async (): Promise<string[]> => {
      const found = [await lookUp(both), await lookUp(alone)];
      return found.map(({ verification }) => verification.verification_status);
    };
    expect(await statuses()).toEqual(['TRUST_ESTABLISHED', 'TRUST_ESTABLISHED']);
    const same = await call(path, { 'If-None-Match': before.headers.etag! });
    expect(same.status).toBe(304);

    registry.recordVerdict(first!, { expired: ['certificate'] });
    await republish();
    expect(await statuses()).toEqual(['EXPIRED', 'TRUST_ESTABLISHED']);
    const after = await call(path, { 'If-None-Match': before.headers.etag! });
    expect(after.status).toBe(200);
    expect(after.headers.etag).not.toBe(before.headers.etag);

    registry.recordVerdict(second!, { outcome: 'fail' });
    await republish();
    expect(await statuses()).toEqual(['BACKEND_LOOKUP_REQUIRED', 'BACKEND_LOOKUP_REQUIRED']);

    registry.revoke(first!, 'trust');
    registry.verify();
    await republish();
    expect(await statuses()).toEqual(['REVOKED', 'BACKEND_LOOKUP_REQUIRED']);
    const { references, verification } = await lookUp(both);
    expect(verification.can_assert_validity).toBe(false);
    const { members } = references as { members: { verification_status: string }[] };
    expect(members.map((member) => member.verification_status)).toEqual([
      'REVOKED',
      'BACKEND_LOOKUP_REQUIRED',
    ]);
  });

  it('does not resolve before all of its members are published', async () => {
    const waiting = registry.addProof();
    const incomplete = registry.bundle([good[0]!, waiting]);
    await republish();
    expectUnresolved(await lookUp(incomplete), 'trust', incomplete);
    registry.verify();
    await republish();
    expect((await lookUp(incomplete)).verification.verification_status).toBe('TRUST_ESTABLISHED');
  });
});

describe('package lookup', () => {
  it.each([
    ['an unknown package', () => `pkg_${proofIdAt(1_700_000_000_000, 'none')}`],
    ['upper case', () => established.toUpperCase()],
    ['an id without its prefix', () => established.slice(4)],
    ['the id of a proof with the prefix of packages', () => `pkg_${good[0]!}`],
    [
      'the id of a package with the prefix of trust artifacts',
      () => `trust_${established.slice(4)}`,
    ],
    ['a proof id', () => good[0]!],
  ])('does not resolve %s', async (_what, id) => {
    const requested = id();
    const reply = await call(`/api/public/verify/package/${encodeURIComponent(requested)}`);
    expect(reply.status).toBe(200);
    expectUnresolved(reply.body, 'trust', requested);
    expect(reply.headers.etag).toBeUndefined();
  });

  it('is the only path that resolves a package', async () => {
    for (const kind of ['certificate', 'passport', 'trust', 'trust-asset']) {
      const { body } = await call(`/api/public/verify/${kind}/${established}`);
      expectUnresolved(body, kind === 'trust-asset' ? 'trust' : kind, established);
    }
    expect((await call(`/api/public/verify/proof/${established}`)).status).toBe(404);
    // A package id has the form of a proof id but does not name a proof.
    const bare = established.slice(4);
    expect((await call(`/api/public/verify/proof/${bare}`)).status).toBe(404);
    expectUnresolved(
      (await call(`/api/public/verify/trust/trust_${bare}`)).body,
      'trust',
      `trust_${bare}`,
    );
    for (const view of ['timeline', 'chain', 'package']) {
      const { body } = await call(`/api/public/trust/${established}/${view}`);
      expect(body).toMatchObject({ lookup: { matched_on: null } });
    }
  });

  it('does not resolve by a body field of another kind', async () => {
    for (const field of ['proof_id', 'trust_id', 'trust_asset_id', 'share_token']) {
      const { body } = await postLookup(server, { [field]: established });
      expectUnresolved(body, 'proof', established);
    }
  });
});
