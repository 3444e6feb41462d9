import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PublicServer } from '#api/public/server';
import { idsOf } from '#protocol/ids';
import {
  facadeSchema,
  type Facade as FacadeBody,
  historySchema,
  trustChainSchema,
} from '#protocol/schemas/facade';
import { canAssertValidity } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import type { HttpServer } from '#runtime/http/server';
import { callAt, postLookup } from '../../fixtures/public-call.js';
import { START, TestSnapshot } from '../../fixtures/snapshot.js';

/** Lookups in the first snapshot after a key compromise, for proofs that the compromised key signed. */

const snapshot = new TestSnapshot();
const { registry, clock } = snapshot;
const before = registry.addProof();
const voided = registry.addProof();
const denied = registry.addProof({ effect: 'DENY' });
const certificateRevoked = registry.addProof();
const expired = registry.addProof({
  validUntil: { proof: null, certificate: null, passport: formatTime(START), trust: null },
});
const proofRevoked = registry.addProof();
const ofOtherKey = registry.addProof({ keyId: registry.addOtherKey() });
const after = [voided, denied, certificateRevoked, expired, proofRevoked];
const FROM = 2;

const mixed = registry.bundle([before, voided]);
const sound = registry.bundle([before, ofOtherKey]);
const ofRevoked = registry.bundle([certificateRevoked, voided]);
const allRevoked = registry.bundle([proofRevoked]);
const tokens = {
  proof: registry.share('proof', voided),
  trust: registry.share('trust', voided),
  package: registry.share('package', mixed),
};

let publisher: Publisher;
let publicServer: PublicServer;
let server: HttpServer;

const get = async (path: string, headers = {}) => {
  const reply = await callAt(server, path, { headers });
  expect(reply.status).toBe(200);
  return reply;
};
const lookUp = async (path: string): Promise<FacadeBody> => {
  const { body } = await get(`/api/public/${path}`);
  expect(facadeSchema.parse(body)).toEqual(body);
  return body as FacadeBody;
};
const republish = async () => {
  clock.at += 1000;
  await publisher.runCycle();
  await publicServer.poller.refresh();
};

/** The paths of all lookups that find a voided proof. */
const LOOKUPS = after.flatMap((id) => {
  const ids = idsOf(id);
  return [
    `verify/proof/${id}`,
    `verify/certificate/${ids.certificate_id}`,
    `verify/passport/${ids.passport_id}`,
    `verify/trust/${ids.trust_id}`,
    `verify/trust-asset/${ids.trust_asset_id}`,
    `certificate/${ids.certificate_id}`,
    `verify?identifier=${ids.execution_id}`,
  ];
});
const SHARED = [
  ...Object.values(tokens).map((token) => `verify/share/${token}`),
  `verify/package/${mixed}`,
  `verify/package/${ofRevoked}`,
  `verify/package/${allRevoked}`,
];
/** The status of each lookup, and whether its response has a trust chain. */
const statuses = async (): Promise<Record<string, string>> => {
  const found: Record<string, string> = {};
  for (const path of [...LOOKUPS, ...SHARED]) {
    const { verification, trust_chain: chain } = await lookUp(path);
    const { verification_status: status, can_assert_validity: asserts } = verification;
    expect(asserts).toBe(canAssertValidity(status));
    found[path] = chain.available ? `${status} with a trust chain` : status;
  }
  return found;
};

let published: Record<string, string>;
let etag: string;
let inRange: Record<string, string>;

beforeAll(async () => {
  registry.verify();
  registry.revoke(certificateRevoked, 'certificate');
  registry.revoke(proofRevoked, 'proof');
  registry.verify();
  publisher = snapshot.publisher();
  await publisher.runCycle();
  publicServer = snapshot.publicServer();
  server = await snapshot.serve(publicServer);
  published = await statuses();
  etag = String((await get(`/api/public/verify/proof/${voided}`)).headers['etag']);
  registry.addKeyEntry('compromise', FROM);
  // The verifier reads the new key entry but re-verifies no proof yet.
  registry.verify();
  await republish();
  inRange = await statuses();
});
afterAll(() => snapshot.close());

describe('snapshot published after the key compromise but before re-verification', () => {
  it('asserts no validity on any lookup and keeps revocations', () => {
    expect(published[`verify/proof/${voided}`]).toBe('VALID with a trust chain');
    expect(published[`verify/share/${tokens.trust}`]).toBe('TRUST_ESTABLISHED with a trust chain');
    expect([...new Set(Object.values(inRange))].sort()).toEqual([
      'BACKEND_LOOKUP_REQUIRED',
      'REVOKED',
    ]);
    const { certificate_id, passport_id } = idsOf(certificateRevoked);
    expect(inRange[`verify/certificate/${certificate_id}`]).toBe('REVOKED');
    expect(inRange[`verify/passport/${passport_id}`]).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(inRange[`verify/package/${ofRevoked}`]).toBe('REVOKED');
  });

  it('keeps the statuses of earlier proofs of the key, of other keys’ proofs, and of their packages', async () => {
    for (const id of [before, ofOtherKey]) {
      const { verification } = await lookUp(`verify/proof/${id}`);
      expect(verification.verification_status).toBe('VALID');
    }
    const { verification } = await lookUp(`verify/package/${sound}`);
    expect(verification.verification_status).toBe('TRUST_ESTABLISHED');
  });

  it('asserts no validity for a voided member of a package', async () => {
    const { references } = await lookUp(`verify/package/${mixed}`);
    expect(references).toMatchObject({
      members: [
        { proof_id: before, verification_status: 'TRUST_ESTABLISHED', can_assert_validity: true },
        {
          proof_id: voided,
          verification_status: 'BACKEND_LOOKUP_REQUIRED',
          can_assert_validity: false,
        },
      ],
    });
  });

  it('asserts no validity by POST, in a view or on the HTML page', async () => {
    const { body } = await postLookup(server, { share_token: tokens.trust });
    expect(facadeSchema.parse(body).verification.can_assert_validity).toBe(false);
    const trust = `/api/public/trust/${idsOf(voided).trust_id}`;
    const chain = trustChainSchema.parse((await get(`${trust}/chain`)).body);
    expect(chain).toMatchObject({ can_assert_validity: false, available: false, links: [] });
    const timeline = historySchema.parse((await get(`${trust}/timeline`)).body);
    expect(timeline.can_assert_validity).toBe(false);
    expect(timeline.events.map(({ event }) => event)).toEqual(['accepted', 'appended', 'verified']);
    const all = JSON.stringify((await get(`${trust}/package`)).body);
    expect(all).not.toContain('"can_assert_validity":true');
    const { text } = await get(`/?identifier=${voided}`);
    expect(text).toContain('BACKEND_LOOKUP_REQUIRED');
    expect(text).not.toContain('<code class="status">VALID');
  });

  it('answers no 304 to an ETag from before the compromise', async () => {
    const { text } = await get(`/api/public/verify/proof/${voided}`, { 'If-None-Match': etag });
    expect(text).toContain('"can_assert_validity":false');
  });
});
