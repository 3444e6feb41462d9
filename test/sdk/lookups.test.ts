import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { idsOf } from '#protocol/ids';
import {
  lookupByBodyHttp,
  lookupHttp,
  readHistoryHttp,
  readPublicKeysHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
  type LookupKind,
  type PublicOptions,
} from '#sdk/index';
import { breakNetwork, type BrokenNetwork } from '../fixtures/broken-network.js';
import { openPublicServers, type PublicServers } from '../fixtures/public-servers.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST } from '../fixtures/sdk-world.js';

const UNKNOWN = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';

let facades: PublicServers;
let network: BrokenNetwork;
let options: PublicOptions;
beforeAll(async () => {
  facades = await openPublicServers();
  network = await breakNetwork(facades.good.server.url);
  options = { publicUrl: network.url, retry: FAST };
});
afterEach(() => {
  network.seen.length = 0;
  network.faults.length = 0;
});
afterAll(async () => {
  await network.close();
  await facades.close();
});

/** Asked once: a facade that has nothing to say asks to be left alone for seconds. */
const at = (served: { server: { url: string } }): PublicOptions => ({
  publicUrl: served.server.url,
  retry: { ...FAST, attempts: 1 },
});

describe('lookupHttp', () => {
  it('relays the verdict on every kind of artifact, with the state of the log it holds for', async () => {
    const { proof, packageId, shareToken } = facades;
    const ids = idsOf(proof);
    const cases: [LookupKind, string, string, boolean][] = [
      ['proof', proof, 'VALID', true],
      ['proof', facades.revoked, 'REVOKED', false],
      ['proof', facades.denied, 'VALID', true],
      ['certificate', ids.certificate_ref, 'VERIFIED', true],
      ['passport', ids.passport_id, 'PASS', true],
      ['trust', ids.trust_id, 'TRUST_ESTABLISHED', true],
      ['trust-asset', ids.trust_asset_id, 'TRUST_ESTABLISHED', true],
      ['share', shareToken, 'VALID', true],
      ['package', packageId, 'REVOKED', false],
      ['identifier', ids.execution_id, 'VALID', true],
      ['certificate', 'cert_unknown', 'BACKEND_LOOKUP_REQUIRED', false],
      ['identifier', 'a/b?c=d#e &%', 'BACKEND_LOOKUP_REQUIRED', false],
      ['passport', 'ünï/cödé 🦀', 'BACKEND_LOOKUP_REQUIRED', false],
    ];
    for (const [kind, identifier, status, asserted] of cases) {
      const found = await lookupHttp(options, { kind, identifier });
      expect([kind, identifier, found.verification_status]).toEqual([kind, identifier, status]);
      expect(found.can_assert_validity).toBe(asserted);
      expect(found.record).toMatchObject({ identifier });
      expect(found.snapshot).toMatchObject({ tree_size: facades.snapshot.registry.all.length });
      expect(found.snapshot.generation).toBeGreaterThan(0);
    }
  });

  it('answers an unknown proof with the not-found record', async () => {
    for (const identifier of [UNKNOWN, 'a proof', 'cert_x', 'a/b']) {
      const found = await lookupHttp(options, { kind: 'proof', identifier });
      expect(found).toMatchObject({ verification_status: 'NOT_FOUND', can_assert_validity: false });
      expect(found.record).toMatchObject({ result: 'NOT_FOUND', verdict_fabricated: false });
    }
  });

  it('throws what the registry cannot say, which is never a NOT_FOUND', async () => {
    const input = { kind: 'proof', identifier: facades.proof } as const;
    const codes = [
      [facades.empty, 'snapshot_missing'],
      [facades.expired, 'snapshot_expired'],
      [facades.unreadable, 'snapshot_unreadable'],
    ] as const;
    for (const [served, code] of codes) {
      const error = await sdkError(lookupHttp(at(served), input), 'unavailable');
      expect(error).toMatchObject({ status: 503, retryable: true, problem: { code } });
    }
  });

  it('takes no other 404 for word of a proof', async () => {
    const input = { kind: 'proof', identifier: facades.proof } as const;
    const elsewhere = { ...options, publicUrl: `${network.url}/elsewhere` };
    const error = await sdkError(lookupHttp(elsewhere, input), 'not_found');
    expect(error.problem?.code).toBe('route_not_found');
    network.faults.push({ kind: 'answer', status: 404 });
    await sdkError(lookupHttp(options, input), 'unexpected_response');
    network.faults.push({
      kind: 'answer',
      status: 404,
      headers: { 'Content-Type': 'application/json' },
      body: '{"result":"NOT_FOUND"}',
    });
    await sdkError(lookupHttp(options, input), 'unexpected_response');
  });

  it('refuses a verdict that does not hold together, or is about something else', async () => {
    const revoked = { kind: 'proof', identifier: facades.revoked } as const;
    const changes: ((body: string) => string)[] = [
      (body) => body.replace('"can_assert_validity":false', '"can_assert_validity":true'),
      (body) => body.replaceAll('REVOKED', 'FINE'),
      (body) => body.replace('"frontend_recomputed":false', '"frontend_recomputed":true'),
      (body) =>
        body.replace(`"identifier":"${facades.revoked}"`, `"identifier":"${facades.proof}"`),
    ];
    for (const change of changes) {
      network.faults.push({ kind: 'changed', change });
      await sdkError(lookupHttp(options, revoked), 'unexpected_response');
    }
  });

  it('refuses a verdict that does not say which state of the log it holds for', async () => {
    const { proof: identifier } = facades;
    const reply = await facades.good.call({ path: `/api/public/verify/proof/${identifier}` });
    const headers = { 'Content-Type': 'application/json', 'X-Svc-Snapshot-Generation': '1' };
    const body = reply.bytes.toString();
    network.faults.push({ kind: 'answer', status: 200, headers, body });
    await sdkError(lookupHttp(options, { kind: 'proof', identifier }), 'unexpected_response');
  });

  it('asks again when an answer gets lost', async () => {
    network.faults.push({ kind: 'lost' }, { kind: 'cut' });
    const found = await lookupHttp(options, { kind: 'proof', identifier: facades.proof });
    expect(found.verification_status).toBe('VALID');
    expect(network.seen).toHaveLength(3);
  });

  it('sends nothing for what is nothing', async () => {
    for (const identifier of ['', '.', '..', 'half \ud800']) {
      await sdkError(lookupHttp(options, { kind: 'trust', identifier }), 'invalid_input');
    }
    const kind = 'constructor' as never;
    await sdkError(lookupHttp(options, { kind, identifier: 'a' }), 'invalid_input');
    expect(network.seen).toEqual([]);
  });

  it('sends no key and no tenant', async () => {
    await lookupHttp(options, { kind: 'proof', identifier: facades.proof });
    const names = Object.keys(network.seen[0]?.headers ?? {});
    expect(names.filter((name) => name.startsWith('x-svc'))).toEqual([]);
  });
});

describe('lookupByBodyHttp', () => {
  it('asks by a canonical body', async () => {
    const found = await lookupByBodyHttp(options, { proof_id: facades.proof });
    expect(found.verification_status).toBe('VALID');
    expect(network.seen[0]).toMatchObject({
      method: 'POST',
      path: '/api/public/verify',
      body: `{"proof_id":"${facades.proof}","schema_version":"svc.public_verification.lookup_request/1.0"}`,
    });
    const token = await lookupByBodyHttp(options, { share_token: facades.shareToken });
    expect(token.can_assert_validity).toBe(true);
    const none = await lookupByBodyHttp(options, { identifier: 'anything' });
    expect(none.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
  });

  it('refuses two at once, and none', async () => {
    const two = { proof_id: 'a', trust_id: 'b' };
    await sdkError(lookupByBodyHttp(options, two), 'invalid_input');
    await sdkError(lookupByBodyHttp(options, {} as never), 'invalid_input');
  });
});

describe('the views', () => {
  it('are relayed as they are', async () => {
    const { certificate_id, passport_id, trust_id } = idsOf(facades.proof);
    for (const [kind, identifier] of [
      ['certificate', certificate_id],
      ['passport', passport_id],
      ['trust', trust_id],
    ] as const) {
      const { record: history } = await readHistoryHttp(options, { kind, identifier });
      expect(history).toMatchObject({ identifier, artifact_kind: kind });
      expect(history.events[0]?.event).toBe('accepted');
      const { record: chain } = await readTrustChainHttp(options, { kind, identifier });
      expect(chain.links.map(({ stage }) => stage)).toEqual(chain.sequence);
    }
    const { record } = await readTrustPackageHttp(options, { trust_id });
    expect(record.evidence?.log_entry.proof_id).toBe(facades.proof);
    const unknown = await readTrustPackageHttp(options, { trust_id: 'trust_unknown' });
    expect(unknown.record).toMatchObject({ evidence: null, can_assert_validity: false });
    await sdkError(
      readHistoryHttp(options, { kind: 'proof' as never, identifier: 'a' }),
      'invalid_input',
    );
  });

  it('have the keys beside them', async () => {
    const { record } = await readPublicKeysHttp(options);
    expect(record.log.vkey).toBe(facades.snapshot.logVkey);
    expect(record.snapshot.vkey).toBe(facades.snapshot.snapshotVkey);
  });
});
