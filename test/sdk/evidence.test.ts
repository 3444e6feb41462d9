import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Evidence } from '#protocol/evidence/document';
import { cosign } from '#protocol/cosignature';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, splitNote } from '#protocol/note';
import { toHex } from '#protocol/bytes';
import { parseTlogProof } from '#protocol/checkpoint';
import { decodeProof, encodeProof, proofMapKey } from '#protocol/state/record';
import {
  lookupHttp,
  readHistoryHttp,
  readTrustChainHttp,
  readTrustPackageHttp,
  type LookupQuery,
  type PublicOptions,
} from '#sdk/index';
import { sha256 } from '../fixtures/leaves.js';
import { everything, LyingServer, type Served } from '../fixtures/lying-server.js';
import { MAP_LIES } from '../fixtures/map-lies.js';
import { fullLog } from '../fixtures/full-log.js';
import { logKey, ORIGIN, proofIdOf } from '../fixtures/public-log.js';
import { ServedLog } from '../fixtures/served-log.js';
import { sdkError } from '../fixtures/sdk-error.js';
import { openFolder, svc, type Folder } from '../fixtures/svc.js';

const MINUTE = 60_000;
/** The index of the first snapshot entry. */
const INDEX = 12;
const [valid, expired, added, absent] = [proofIdOf(0), proofIdOf(3), proofIdOf(5), proofIdOf(99)];
/** A proof whose certificate is revoked. */
const revoked = proofIdOf(6);
const PACKAGE = `pkg_${proofIdOf(1000)}`;
const { token } = fullLog;
const CERTIFICATE = `cert_${revoked}`;

let server: LyingServer;
/** Two snapshots of a log. The later one adds a proof, and a revocation of the proof `valid`. */
let earlier: Served;
let later: Served;
let options: PublicOptions;
let folder: Folder;

beforeAll(async () => {
  const log = await openLog();
  server = await LyingServer.open(log.keys.log.vkey);
  earlier = await server.serve(log);
  await log.append(log.proof(5, log.keys.aep), log.status(0, 'proof'));
  await log.snapshotAll();
  later = await server.serve(log);
  options = { publicUrl: server.url, pins: { vkey: log.keys.log.vkey, origin: ORIGIN } };
  folder = await openFolder();
});
beforeEach(() => {
  server.sources = everything(earlier);
  server.alterAnswer = server.alterEvidence = server.retryAfter = null;
  server.requests.length = 0;
});
afterAll(() => server.close());

/** A log with a snapshot, a package and a share. */
async function openLog(
  members: Parameters<typeof ServedLog.open>[0] = {},
  lie?: Parameters<ServedLog['snapshotAll']>[0],
): Promise<ServedLog> {
  const log = await ServedLog.open({ isLive: true, openedAt: Date.now() - 1000, ...members });
  await log.append(log.proof(6, log.keys.aep));
  await log.append(log.status(6, 'certificate'));
  log.addPackage(PACKAGE, [revoked, valid]);
  log.addShare(token, { artifact_kind: 'passport', id: expired });
  await log.snapshotAll(lie);
  return log;
}

/** Runs the command line with the pinned log key. */
const run = (...args: string[]) =>
  svc([...args, '--log-vkey', earlier.log.keys.log.vkey], {
    env: { SVC_PUBLIC_URL: server.url },
    cwd: folder.path,
  });

describe('a lookup with pins', () => {
  it('returns the proved answer about different kinds of identifiers', async () => {
    const cases: [LookupQuery, string, [string, boolean][]][] = [
      [{ kind: 'proof', identifier: valid }, 'VALID', [[valid, true]]],
      [{ kind: 'certificate', identifier: CERTIFICATE }, 'REVOKED', [[revoked, true]]],
      [{ kind: 'passport', identifier: `pass_${expired}` }, 'EXPIRED', [[expired, true]]],
      [{ kind: 'proof', identifier: absent }, 'NOT_FOUND', [[absent, false]]],
      [{ kind: 'share', identifier: token }, 'EXPIRED', [[expired, true]]],
      [{ kind: 'identifier', identifier: `exec_${valid}` }, 'VALID', [[valid, true]]],
      [{ kind: 'identifier', identifier: 'no id' }, 'BACKEND_LOOKUP_REQUIRED', []],
      [{ kind: 'package', identifier: PACKAGE }, 'REVOKED', [[revoked, true], [valid, true]]],
    ]; // prettier-ignore
    for (const [query, status, proofs] of cases) {
      const found = await lookupHttp(options, query);
      expect([query, found.verification_status]).toEqual([query, status]);
      expect(found.evidence).toMatchObject({
        proofs: proofs.map(([proof_id, isFound]) => ({ proof_id, found: isFound })),
        log_index: INDEX,
        trusted: { log_origin: ORIGIN, witnesses: [] },
      });
      expect(found.evidence!.age_ms).toBeLessThan(MINUTE);
    }
  });

  it('returns proved histories and trust chains', async () => {
    const query = { kind: 'certificate', identifier: CERTIFICATE } as const;
    const history = await readHistoryHttp(options, query);
    expect(history.record.events.map(({ event }) => event)).toContain('revoked');
    expect(history.evidence).toMatchObject({ log_index: INDEX });
    const chain = await readTrustChainHttp(options, query);
    expect(chain.record.links.map((link) => link.verification_status)).toContain('REVOKED');
    server.alterAnswer = (record: object) => ({ ...record, events: [], links: [] });
    await sdkError(readHistoryHttp(options, query), 'evidence_rejected');
    await sdkError(readTrustChainHttp(options, query), 'evidence_rejected');
    const invented = { event: 'accepted', at: '2026-11-22T08:00:00.000Z' };
    server.alterAnswer = (record: { events?: object[] }) => ({
      ...record,
      events: [...(record.events ?? []), invented],
    });
    await sdkError(readHistoryHttp(options, query), 'evidence_rejected');
  });

  it('rejects a trust package whose log entry contradicts the proved record', async () => {
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
    server.sources.evidence = later;
    server.alterEvidence = (evidence) => {
      server.sources.answers = later;
      return evidence;
    };
    const found = await lookupHttp(options, { kind: 'proof', identifier: added });
    const generation = later.log.size - 1;
    expect(found).toMatchObject({ verification_status: 'VALID', snapshot: { generation } });
    expect(server.requests).toHaveLength(4);
  });

  it('rejects unusable options', async () => {
    const query = { kind: 'proof', identifier: valid } as const;
    await sdkError(lookupHttp({ publicUrl: server.url, maxAgeMs: 1 }, query), 'invalid_input');
    await sdkError(lookupHttp({ ...options, maxAgeMs: NaN }, query), 'invalid_input');
    const pins = { vkey: ORIGIN, origin: ORIGIN };
    await sdkError(lookupHttp({ ...options, pins }, query), 'unusable_pin');
    expect(server.requests).toEqual([]);
  });

  it('does not use an answer without evidence', async () => {
    server.alterEvidence = () => ({});
    const error = await sdkError(
      lookupHttp(options, { kind: 'proof', identifier: valid }),
      'evidence_rejected',
    );
    expect(error.fault).toBe('malformed_evidence');
  });
});

const REVOKED = { kind: 'certificate', identifier: CERTIFICATE } as const;

/** False answers of a server that does not have the log key; lies.long.test.ts tests more false answers. */
const LIES: [name: string, query: LookupQuery, begin: () => void, fault: string][] = [
  [
    'the evidence of another identifier',
    { kind: 'proof', identifier: absent },
    () => {
      server.alterEvidence = () => earlier.log.evidenceOf(valid);
    },
    'wrong_identifier',
  ],
  [
    'the answer before a revocation with the evidence after it',
    { kind: 'certificate', identifier: `cert_${valid}` },
    () => {
      server.sources.evidence = later;
    },
    'answer_mismatch',
  ],
];

describe('a malicious server', () => {
  it.each(LIES)('%s > is detected by SDK and command line', async (_name, query, begin, fault) => {
    begin();
    const error = await sdkError(lookupHttp(options, query), 'evidence_rejected');
    expect(error).toMatchObject({ fault, retryable: false });
    const { code, stdout, stderr } = await run('lookup', query.identifier);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('evidence is rejected');
  });

  it('is not detected without pins, and the result shows that nothing was verified', async () => {
    server.sources.answers = await server.serve(await openLog({}, MAP_LIES.inventedProof));
    const query = { kind: 'proof', identifier: absent } as const;
    const found = await lookupHttp({ publicUrl: server.url }, query);
    expect(found).toMatchObject({ verification_status: 'VALID', evidence: null });
    const env = { SVC_PUBLIC_URL: server.url };
    expect((await svc(['lookup', absent], { env })).stdout).toMatch(/^verified +nothing: /m);
    expect(server.requests).toHaveLength(2);
  });

  it.each<[string, number, number | undefined]>([
    ['an expired snapshot', 16 * MINUTE, undefined],
    ['a snapshot older than the reader accepts', 5 * MINUTE, 4 * MINUTE],
  ])('can replay %s only for the answer REVOKED', async (_name, age, maxAgeMs) => {
    const openedAt = Date.now() - age - 1000;
    const log = await openLog({ openedAt, keys: earlier.log.keys });
    server.sources = everything(await server.serve(log, { now: () => openedAt + 1000 }));
    const aged = { ...options, ...(maxAgeMs !== undefined && { maxAgeMs }) };
    for (const identifier of [valid, absent]) {
      const lookup = lookupHttp(aged, { kind: 'proof', identifier });
      const { message } = await sdkError(lookup, 'evidence_outdated');
      expect(message).toContain('by the clock of this reader');
    }
    const found = await lookupHttp(aged, { kind: 'certificate', identifier: CERTIFICATE });
    expect(found.verification_status).toBe('REVOKED');
    expect(found.evidence!.age_ms).toBeGreaterThanOrEqual(age);
    expect((await readHistoryHttp(aged, REVOKED)).record.verification_status).toBe('REVOKED');
    // The chain and the package also assert the validity of other artifacts.
    await sdkError(readTrustChainHttp(aged, REVOKED), 'evidence_outdated');
    const ofPackage = { kind: 'package', identifier: PACKAGE } as const;
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
      expect(stdout).toMatch(/^verified +proofs found: 1, absent: 0; in the snapshot at leaf 12$/m);
      expect(stdout).toMatch(/^age +[0-9]+ s$/m);
      expect(stdout).toMatch(/^trusted +log log.example\/svc, key [0-9a-f]{8}, no witness$/m);
    }
  });

  it('lookup reports the proof of an outcome as a report', async () => {
    const log = await openLog({ keys: earlier.log.keys });
    await log.append(log.proof(7, log.keys.aep, { valid_until: { proof: null } }));
    await log.snapshotAll();
    server.sources = everything(await server.serve(log));
    const { code, stdout } = await run('lookup', proofIdOf(7));
    expect([code, stdout]).toEqual([
      4,
      expect.stringMatching(/^VALID {2}\(of a report: an outcome, or a closed run\)\n/),
    ]);
    const ofAction = await run('lookup', valid);
    expect([ofAction.code, ofAction.stdout]).toEqual([0, expect.stringMatching(/^VALID\n/)]);
  });

  it('lookup reports NOT_FOUND as undecided when the log has the proof without a verdict', async () => {
    const log = await openLog({ keys: earlier.log.keys }, (values) => {
      const key = toHex(proofMapKey(valid));
      const proof = decodeProof(values.get(key)!.record);
      const unverified = { verdict: 'none', verdictSize: null, verifiedAt: null } as const;
      const record = encodeProof({ ...proof, ...unverified });
      values.set(key, { record, history: new Uint8Array(0) });
    });
    server.sources = everything(await server.serve(log));
    const { code, stdout } = await run('lookup', valid);
    expect(code).toBe(3);
    expect(stdout).toMatch(
      /^NOT_FOUND\n[^]*^not verified +the log has this proof, but no verdict/m,
    );
    expect((await run('lookup', absent)).code).toBe(1);
    server.retryAfter = '1';
    const again = await run('lookup', valid);
    expect([again.code, again.stdout]).toEqual([3, expect.not.stringContaining('too new')]);
  });

  it('lookup reports a proof as too new only if its id does not show that it is old', async () => {
    server.retryAfter = '1';
    const isOld = await run('lookup', absent);
    expect([isOld.code, isOld.stdout]).toEqual([1, expect.not.stringContaining('too new')]);
    const time = (Date.now() - MINUTE / 2).toString(16).padStart(12, '0');
    const isNew = await run('lookup', time + absent.slice(12));
    expect([isNew.code, isNew.stdout]).toEqual([3, expect.stringContaining('too new')]);
    const wrong = await run('lookup', `cert_${valid}`, '--kind', 'proof');
    expect(wrong.stdout).toMatch(/^NOT_FOUND\n/);
    expect([wrong.code, wrong.stdout]).toEqual([1, expect.not.stringContaining('not verified')]);
  });

  it.each(['follow', 'lookup', 'evidence'])(
    '%s waits until the witnesses of the policy have cosigned the checkpoint',
    async (command) => {
      const { name, publicKey, sign } = logKey('witness.example/w1');
      const witness = noteSigner(sha256, name, { publicKey, sign }, COSIGNATURE_TYPE);
      const vkey = formatVkey(sha256, name, publicKey, COSIGNATURE_TYPE);
      await folder.write('policy', `witness w1 ${vkey}\nquorum w1\n`);
      const polls = ['without a cosignature', 'cosigned'];
      server.alterEvidence = (evidence: Evidence) => {
        if (polls.shift() !== 'cosigned') return evidence;
        const { text } = splitNote(parseTlogProof(evidence.tlog_proof).checkpoint);
        return { ...evidence, tlog_proof: evidence.tlog_proof + cosign(text, witness, 1) };
      };
      const { code, stdout, stderr } = await run(command, valid, '--policy', 'policy');
      expect([code, polls]).toEqual([0, []]);
      expect(stdout + stderr).toMatch(/^trusted .*, witnesses w1$/m);
    },
  );

  it('lookup --view exits with 0 only if the printed document asserts validity', async () => {
    server.sources = everything(later);
    server.alterEvidence = (evidence) => {
      server.sources = everything(earlier);
      return evidence;
    };
    const { code, lines } = await run('lookup', `cert_${valid}`, '--view', 'history');
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
    const other = await openLog();
    server.sources.evidence = await server.serve(other);
    const { code, stdout } = await run('evidence', valid);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    for (const answer of [other.evidenceOf(absent), { login: 'https://portal.example' }]) {
      server.alterEvidence = () => answer;
      const unpinned = await svc(['evidence', valid], { env: { SVC_PUBLIC_URL: server.url } });
      expect(unpinned).toMatchObject({ code: 3, stdout: '' });
    }
  });
});
