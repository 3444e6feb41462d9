import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Evidence } from '#protocol/evidence/document';
import { cosign } from '#protocol/cosignature';
import type { MapValue } from '#protocol/map/page';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, splitNote } from '#protocol/note';
import { parseTlogProof } from '#protocol/checkpoint';
import {
  lookupHttp,
  readHistoryHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
  type LookupQuery,
  type PublicOptions,
} from '#sdk/index';
import { logKey, openEvidenceLog, WORKED } from '../fixtures/evidence-log.js';
import { openEvidenceServer, type EvidenceServer } from '../fixtures/evidence-server.js';
import { sha256 } from '../fixtures/leaves.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { openFolder, svc, type Folder } from '../fixtures/svc.js';

const MINUTE = 60_000;
const { revoked, valid, absent, token } = WORKED;
const CERTIFICATE = `cert_${revoked}`;

let server: EvidenceServer;
let options: PublicOptions;
let folder: Folder;
const healthy = () => ({ ...server });
let initial: ReturnType<typeof healthy>;

beforeAll(async () => {
  server = await openEvidenceServer();
  initial = healthy();
  options = { publicUrl: server.url, pins: server.pins };
  folder = await openFolder();
});
beforeEach(() => Object.assign(server, initial, { requests: [] }));
afterAll(async () => {
  await server.close();
});

/** Runs the command line with the pinned log key. */
const run = (...args: string[]) =>
  svc([...args, '--log-vkey', server.pins.vkey], {
    env: { SVC_PUBLIC_URL: server.url },
    cwd: folder.path,
  });

describe('a lookup with pins', () => {
  it('returns the proved answer about every kind of identifier', async () => {
    const cases: [LookupQuery, string, [string, boolean][]][] = [
      [{ kind: 'proof', identifier: valid }, 'VALID', [[valid, true]]],
      [{ kind: 'certificate', identifier: CERTIFICATE }, 'REVOKED', [[revoked, true]]],
      [{ kind: 'passport', identifier: `pass_${valid}` }, 'EXPIRED', [[valid, true]]],
      [{ kind: 'proof', identifier: absent }, 'NOT_FOUND', [[absent, false]]],
      [{ kind: 'share', identifier: token }, 'EXPIRED', [[revoked, true]]],
      [{ kind: 'identifier', identifier: `exec_${valid}` }, 'VALID', [[valid, true]]],
      [{ kind: 'identifier', identifier: 'no id' }, 'BACKEND_LOOKUP_REQUIRED', []],
      [{ kind: 'package', identifier: WORKED.package }, 'REVOKED', [[revoked, true], [valid, true]]],
    ]; // prettier-ignore
    for (const [query, status, proofs] of cases) {
      const found = await lookupHttp(options, query);
      expect([query, found.verification_status]).toEqual([query, status]);
      expect(found.evidence).toMatchObject({
        proofs: proofs.map(([proof_id, isFound]) => ({ proof_id, found: isFound })),
        log_index: 17,
        trusted: { log_origin: server.pins.origin, witnesses: [] },
      });
      expect(found.evidence!.age_ms).toBeLessThan(MINUTE);
    }
  });

  it('returns proved histories and trust chains', async () => {
    server.answers = server.evidence = await server.snapshot({ change: withoutEnds });
    const query = { kind: 'certificate', identifier: CERTIFICATE } as const;
    const history = await readHistoryHttp(options, query);
    expect(history.record.events.map(({ event }) => event)).toContain('revoked');
    expect(history.evidence).toMatchObject({ log_index: 17 });
    const chain = await readTrustChainHttp(options, query);
    expect(chain.record.links.map((link) => link.verification_status)).toContain('REVOKED');
    server.alterAnswer = (record) => ({ ...record, events: [], links: [] });
    await sdkError(readHistoryHttp(options, query), 'evidence_rejected');
    await sdkError(readTrustChainHttp(options, query), 'evidence_rejected');
    const invented = { event: 'accepted', at: '2026-11-22T08:00:00.000Z' };
    server.alterAnswer = (record: { events?: object[] }) => ({
      ...record,
      events: [...(record.events ?? []), invented],
    });
    await sdkError(readHistoryHttp(options, query), 'evidence_rejected');
  });

  it('returns a trust package whose log entry is that of the proved record', async () => {
    const input = { trust_id: `trust_${valid}` };
    const { record } = await readTrustPackageHttp(options, input);
    const own = record.evidence!.log_entry;
    for (const lie of [
      { environment: own.environment === 'live' ? 'sandbox' : 'live' },
      { valid_until: { ...own.valid_until, trust: '2126-11-20T17:29:00.123Z' } },
      { time: '2026-11-19T17:29:00.123Z' },
      { key_id: 'A'.repeat(43) },
    ]) {
      server.alterAnswer = () => {
        const log_entry = { ...own, ...lie };
        return { ...record, evidence: { ...record.evidence, log_entry } };
      };
      await sdkError(readTrustPackageHttp(options, input), 'evidence_rejected');
    }
  });

  it('retries when a snapshot was published between an answer and its evidence', async () => {
    server.answers = await server.snapshot({ change: without(`01${valid}`) });
    server.evidence = await server.snapshot({ more: 1 });
    server.alterEvidence = (evidence) => {
      server.answers = server.evidence;
      return evidence;
    };
    const found = await lookupHttp(options, { kind: 'proof', identifier: valid });
    expect(found).toMatchObject({ verification_status: 'VALID', snapshot: { generation: 18 } });
    expect(server.requests).toHaveLength(4);
  });

  it('rejects unusable options', async () => {
    const query = { kind: 'proof', identifier: valid } as const;
    await sdkError(lookupHttp({ publicUrl: server.url, maxAgeMs: 1 }, query), 'invalid_input');
    await sdkError(lookupHttp({ ...options, maxAgeMs: NaN }, query), 'invalid_input');
    const pins = { ...server.pins, vkey: 'log.example/svc' };
    await sdkError(lookupHttp({ ...options, pins }, query), 'unusable_pin');
    expect(server.requests).toEqual([]);
  });

  it('does not use an answer without evidence', async () => {
    server.alterEvidence = () => ({}) as Evidence;
    const error = await sdkError(
      lookupHttp(options, { kind: 'proof', identifier: valid }),
      'evidence_rejected',
    );
    expect(error.fault).toBe('malformed_evidence');
  });
});

type Values = Map<string, MapValue>;
const without = (key: string) => (values: Values) => void values.delete(key);
/** Removes the expiry of all artifacts. */
const withoutEnds = (values: Values) => {
  for (const key of [`01${revoked}`, `01${valid}`]) {
    const { record, history } = values.get(key)!;
    values.set(key, { record: record.slice().fill(0xff, 34, 58), history });
  }
};
/** Copies the record of an admitted proof, which has no revocation. */
const withAdmitted = (key: string) => (values: Values) =>
  void values.set(key, values.get(`01${valid}`)!);
const ABSENT = { kind: 'proof', identifier: absent } as const;
const REVOKED = { kind: 'certificate', identifier: CERTIFICATE } as const;

/** False answers of a server that does not have the log key; lies.long.test.ts tests others. */
const LIES: [name: string, query: LookupQuery, begin: () => unknown, fault: string][] = [
  [
    'the evidence of another identifier',
    ABSENT,
    () => {
      const other = server.evidence.evidenceOf(valid);
      server.alterEvidence = () => other;
    },
    'wrong_identifier',
  ],
  [
    'the state before a revocation, for as long as the reader asks',
    REVOKED,
    async () => {
      server.answers = await server.snapshot({ change: withAdmitted(`01${revoked}`) });
      server.evidence = await server.snapshot({ more: 1 });
    },
    'answer_mismatch',
  ],
];

describe('a malicious server', () => {
  it.each(LIES)('%s > is detected by SDK and command line', async (_name, query, begin, fault) => {
    await begin();
    const error = await sdkError(lookupHttp(options, query), 'evidence_rejected');
    expect(error).toMatchObject({ fault, retryable: false });
    const { code, stdout, stderr } = await run('lookup', query.identifier);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('evidence is rejected');
  });

  it('is not detected without pins, and the result shows that nothing was verified', async () => {
    server.answers = await server.snapshot({ change: withAdmitted(`01${absent}`) });
    const query = { kind: 'proof', identifier: absent } as const;
    const found = await lookupHttp({ publicUrl: server.url }, query);
    expect(found).toMatchObject({ verification_status: 'VALID', evidence: null });
    const env = { SVC_PUBLIC_URL: server.url };
    expect((await svc(['lookup', absent], { env })).stdout).toMatch(/^verified +nothing: /m);
    expect(server.requests).toHaveLength(2);
  });

  it.each<[string, number, number | undefined]>([
    ['a snapshot after its end', 16 * MINUTE, undefined],
    ['a snapshot older than the reader accepts', 5 * MINUTE, 4 * MINUTE],
  ])('can replay %s only for the answer REVOKED', async (_name, age, maxAgeMs) => {
    const change = withoutEnds;
    server.answers = server.evidence = await server.snapshot({ time: Date.now() - age, change });
    const aged = { ...options, ...(maxAgeMs !== undefined && { maxAgeMs }) };
    for (const identifier of [valid, absent]) {
      await sdkError(lookupHttp(aged, { kind: 'proof', identifier }), 'evidence_outdated');
    }
    const found = await lookupHttp(aged, { kind: 'certificate', identifier: CERTIFICATE });
    expect(found.verification_status).toBe('REVOKED');
    expect(found.evidence!.age_ms).toBeGreaterThanOrEqual(age);
    expect((await readHistoryHttp(aged, REVOKED)).record.verification_status).toBe('REVOKED');
    // The chain and the package also assert the validity of other artifacts.
    await sdkError(readTrustChainHttp(aged, REVOKED), 'evidence_outdated');
    const ofPackage = { kind: 'package', identifier: WORKED.package } as const;
    await sdkError(lookupHttp(aged, ofPackage), 'evidence_outdated');
    const limit = maxAgeMs === undefined ? [] : ['--max-age', String(maxAgeMs / 1000)];
    expect((await run('lookup', valid, ...limit)).code).toBe(3);
    expect((await run('lookup', CERTIFICATE, ...limit)).code).toBe(1);
  });
});

describe('svc', () => {
  it('lookup and follow print what was proved and what is trusted', async () => {
    for (const command of ['lookup', 'follow']) {
      const { code, stdout } = await run(command, valid);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^VALID\n/);
      expect(stdout).toMatch(/^environment +sandbox$/m);
      expect(stdout).toMatch(/^verified +proofs found: 1, absent: 0; in the snapshot at leaf 17$/m);
      expect(stdout).toMatch(/^age +[0-9]+ s$/m);
      expect(stdout).toMatch(/^trusted +log log.example\/svc, key [0-9a-f]{8}, no witness$/m);
    }
  });

  it('follow waits until the witnesses of the policy have cosigned the checkpoint', async () => {
    const { name, publicKey, sign } = logKey('witness.example/w1');
    const witness = noteSigner(sha256, name, { publicKey, sign }, COSIGNATURE_TYPE);
    const vkey = formatVkey(sha256, name, publicKey, COSIGNATURE_TYPE);
    await folder.write('policy', `witness w1 ${vkey}\nquorum w1\n`);
    const polls = ['without a cosignature', 'cosigned'];
    server.alterEvidence = (evidence) => {
      if (polls.shift() !== 'cosigned') return evidence;
      const { text } = splitNote(parseTlogProof(evidence.tlog_proof).checkpoint);
      return { ...evidence, tlog_proof: evidence.tlog_proof + cosign(text, witness, 1) };
    };
    const { code, stdout } = await run('follow', valid, '--policy', 'policy');
    expect([code, polls]).toEqual([0, []]);
    expect(stdout).toMatch(/^trusted .*, witnesses w1$/m);
  });

  it('lookup --view exits with 0 only if the printed document asserts validity', async () => {
    const earlier = await server.snapshot({
      change: (values) => {
        withoutEnds(values);
        withAdmitted(`01${revoked}`)(values);
      },
    });
    server.answers = server.evidence = await server.snapshot({ more: 1 });
    server.alterEvidence = (evidence) => {
      server.answers = server.evidence = earlier;
      return evidence;
    };
    const { code, lines } = await run('lookup', CERTIFICATE, '--view', 'history');
    expect([code, lines]).toMatchObject([1, [{ verification_status: 'REVOKED' }]]);
  });

  it('evidence writes a file that verify reads offline, with its age', async () => {
    const { code, stdout } = await run('evidence', CERTIFICATE);
    expect(code).toBe(0);
    await folder.write('revoked.json', stdout);
    await run('evidence', valid, '-o', 'valid.json');
    await run('evidence', token, '-o', 'share.json');
    server.requests.length = 0;
    const verify = (...args: string[]) => run('verify', '--offline', ...args);
    const ofValid = await verify('valid.json');
    expect([ofValid.code, ofValid.stdout]).toEqual([0, expect.stringMatching(/^VALID\n/)]);
    expect(ofValid.stdout).toMatch(/^age +[0-9]+ s$/m);
    expect((await verify('revoked.json', '--max-age', '0')).stdout).toMatch(/^REVOKED\n/);
    const aged = await verify('valid.json', '--max-age', '0');
    expect([aged.code, aged.stderr]).toEqual([3, expect.stringContaining('the answer was VALID')]);
    expect((await verify('valid.json', '--id', absent)).code).toBe(1);
    expect((await verify('share.json')).code).toBe(2);
    expect((await verify('share.json', '--id', token)).stdout).toMatch(/^EXPIRED\n/);
    expect(server.requests).toEqual([]);
  });

  it('evidence does not write evidence that does not verify', async () => {
    server.evidence = await openEvidenceLog({ key: logKey(), time: Date.now() });
    const { code, stdout } = await run('evidence', valid);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    const other = server.evidence.evidenceOf(absent);
    for (const answer of [other, { login: 'https://portal.example' }]) {
      server.alterEvidence = () => answer as Evidence;
      const unpinned = await svc(['evidence', valid], { env: { SVC_PUBLIC_URL: server.url } });
      expect(unpinned).toMatchObject({ code: 3, stdout: '' });
    }
  });
});
