import { describe, expect } from 'vitest';
import { idsOf } from '#protocol/ids';
import {
  lookupByBodyHttp,
  lookupHttp,
  readHistoryHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
  waitForVerdictHttp,
  type LookupKind,
  type PublicOptions,
  type PublicTrustPackage,
} from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';
import { FAST, sdkTest } from '../fixtures/sdk-world.js';

const it = sdkTest().extend<{ options: PublicOptions }>({
  options: async ({ publicNetwork }, use) => use({ publicUrl: publicNetwork.url, retry: FAST }),
});

/** A single attempt, because a server without a snapshot sends a Retry-After of seconds. */
const at = (served: { server: { url: string } }): PublicOptions => ({
  publicUrl: served.server.url,
  retry: { ...FAST, attempts: 1 },
});

describe('lookupHttp', () => {
  it('relays the verdict on every kind of artifact, with the snapshot headers', async ({
    facades,
    options,
  }) => {
    const { proof, packageId, shareToken } = facades;
    const ids = idsOf(proof);
    const cases: [LookupKind, string, string, boolean][] = [
      ['proof', proof, 'VALID', true],
      ['certificate', ids.certificate_ref, 'VERIFIED', true],
      ['trust-asset', ids.trust_asset_id, 'TRUST_ESTABLISHED', true],
      ['share', shareToken, 'VALID', true],
      ['package', packageId, 'REVOKED', false],
      ['identifier', 'a/b?c=d#e &%', 'BACKEND_LOOKUP_REQUIRED', false],
      ['passport', 'ünï/cödé 🦀', 'BACKEND_LOOKUP_REQUIRED', false],
    ];
    const { size } = (await facades.snapshot.published()).log;
    for (const [kind, identifier, status, asserted] of cases) {
      const found = await lookupHttp(options, { kind, identifier });
      expect([kind, identifier, found.verification_status]).toEqual([kind, identifier, status]);
      expect(found.can_assert_validity).toBe(asserted);
      expect(found.record).toMatchObject({ identifier });
      expect(found.snapshot).toMatchObject({ tree_size: size });
      expect(found.snapshot.generation).toBeGreaterThan(0);
    }
  });

  it('throws unavailable, not NOT_FOUND, without a valid snapshot', async ({ facades }) => {
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

  it('throws for a 404 without a not-found record', async ({ facades, options, publicNetwork }) => {
    const input = { kind: 'proof', identifier: facades.proof } as const;
    const elsewhere = { ...options, publicUrl: `${publicNetwork.url}/elsewhere` };
    const error = await sdkError(lookupHttp(elsewhere, input), 'not_found');
    expect(error.problem?.code).toBe('route_not_found');
    publicNetwork.faults.push({ kind: 'answer', status: 404 });
    await sdkError(lookupHttp(options, input), 'unexpected_response');
    publicNetwork.faults.push({
      kind: 'answer',
      status: 404,
      headers: { 'Content-Type': 'application/json' },
      body: '{"result":"NOT_FOUND"}',
    });
    await sdkError(lookupHttp(options, input), 'unexpected_response');
  });

  it('throws for a contradictory verdict, and for a verdict on another identifier', async ({
    facades,
    options,
    publicNetwork,
  }) => {
    const revoked = { kind: 'proof', identifier: facades.revoked } as const;
    const changes: ((body: string) => string)[] = [
      (body) => body.replace('"can_assert_validity":false', '"can_assert_validity":true'),
      (body) =>
        body.replace('"can_assert_validity":false', '"can_assert_validity":true,"status":"VALID"'),
      (body) => body.replaceAll('REVOKED', 'FINE'),
      (body) => body.replace('"frontend_recomputed":false', '"frontend_recomputed":true'),
      (body) =>
        body.replace(`"identifier":"${facades.revoked}"`, `"identifier":"${facades.proof}"`),
      (body) => body.replace(`"requested":"${facades.revoked}"`, `"requested":"${facades.proof}"`),
      (body) => body.replace('"artifact_kind":"proof"', '"artifact_kind":"passport"'),
    ];
    for (const change of changes) {
      publicNetwork.faults.push({ kind: 'changed', change });
      await sdkError(lookupHttp(options, revoked), 'unexpected_response');
    }
  });

  it('throws for a verdict without snapshot headers', async ({
    facades,
    options,
    publicNetwork,
  }) => {
    const { proof: identifier } = facades;
    const reply = await facades.good.call({ path: `/api/public/verify/proof/${identifier}` });
    const headers = { 'Content-Type': 'application/json', 'X-Svc-Snapshot-Generation': '1' };
    const body = reply.bytes.toString();
    publicNetwork.faults.push({ kind: 'answer', status: 200, headers, body });
    await sdkError(lookupHttp(options, { kind: 'proof', identifier }), 'unexpected_response');
  });

  it('rejects invalid identifiers and kinds before it sends a request', async ({
    options,
    publicNetwork,
  }) => {
    for (const identifier of ['', '.', '..', 'half \ud800', undefined as never, [] as never]) {
      for (const kind of ['trust', 'identifier'] as const) {
        await sdkError(lookupHttp(options, { kind, identifier }), 'invalid_input');
      }
      await sdkError(readHistoryHttp(options, { kind: 'trust', identifier }), 'invalid_input');
      await sdkError(readTrustChainHttp(options, { kind: 'trust', identifier }), 'invalid_input');
      await sdkError(readTrustPackageHttp(options, { trust_id: identifier }), 'invalid_input');
      await sdkError(waitForVerdictHttp(options, { proof_id: identifier }), 'invalid_input');
    }
    await sdkError(lookupByBodyHttp(options, { proof_id: undefined as never }), 'invalid_input');
    const kind = 'constructor' as never;
    await sdkError(lookupHttp(options, { kind, identifier: 'a' }), 'invalid_input');
    expect(publicNetwork.seen).toEqual([]);
  });

  it('sends neither the API key nor the tenant', async ({ facades, options, publicNetwork }) => {
    await lookupHttp(options, { kind: 'proof', identifier: facades.proof });
    const names = Object.keys(publicNetwork.seen[0]?.headers ?? {});
    expect(names.filter((name) => name.startsWith('x-svc'))).toEqual([]);
  });
});

it('history, chain and trust package functions > throw for a document about another artifact', async ({
  facades,
  options,
  publicNetwork,
}) => {
  const { trust_id } = idsOf(facades.proof);
  const other = idsOf(facades.revoked).trust_id;
  const input = { kind: 'trust', identifier: trust_id } as const;
  const views = [readHistoryHttp, readTrustChainHttp];
  const calls = [
    ...views.map((view) => () => view(options, input)),
    () => readTrustPackageHttp(options, { trust_id }),
  ];
  const changes: ((document: PublicTrustPackage) => void)[] = [
    (document) => (document.identifier = other),
    (document) => (document.lookup.requested = other),
    (document) => (document.artifact_kind = 'passport'),
  ];
  const partChanges: typeof changes = [
    ({ facade }) => (facade.identifier = other),
    ({ history }) => (history.identifier = other),
    ({ chain }) => (chain.identifier = other),
    ({ evidence }) => (evidence!.log_entry.proof_id = facades.revoked),
  ];
  const changed = async (call: () => Promise<unknown>, change: (typeof changes)[number]) => {
    publicNetwork.faults.push({
      kind: 'changed',
      change: (body) => {
        const document = JSON.parse(body) as PublicTrustPackage;
        change(document);
        return JSON.stringify(document);
      },
    });
    await sdkError(call(), 'unexpected_response');
  };
  for (const call of calls) for (const change of changes) await changed(call, change);
  for (const change of partChanges) await changed(calls.at(-1)!, change);
});
