import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import renderPdf from '#api/engine/pdf/render';
import { packageRoot } from '#runtime/process/files';
import {
  documentFor,
  PAGE_URL,
  pdfRequestFor,
  type PdfDocumentOptions,
} from '../../fixtures/pdf-documents.js';
import { newApprover } from '../../fixtures/approvals.js';
import { readPdf, readQrCode } from '../../fixtures/pdf.js';
import { testFolder } from '../../fixtures/test-folder.js';
import { admitted, logVkey } from '../../fixtures/worked-log.js';

const render = (options: PdfDocumentOptions = {}) => renderPdf(pdfRequestFor(options));
const read = async (options: PdfDocumentOptions = {}) => readPdf(await render(options));
const textOf = async (options: PdfDocumentOptions = {}) => (await read(options)).pages.join('\n');

it('PDF export > contains the ids, hashes, times, decision and signatures of the proof', async () => {
  const document = documentFor();
  const bytes = await render();
  const { pages, links, info } = await readPdf(bytes);
  const text = pages.join('\n');
  const { aep, entry, inclusion, envelope } = document;
  const facts = [
    aep.tenant_id,
    'BOOK_RESERVATION',
    ...aep.decision.reasons,
    aep.accepted_at,
    aep.policy.digest,
    aep.policy.input_hash,
    'fixture-1',
    entry.aep_hash,
    entry.proof_record_hash,
    admitted.requestHash,
    aep.key_id,
    String(inclusion.leaf_index),
    String(inclusion.tree_size),
    ...inclusion.path,
    logVkey,
    PAGE_URL,
    '2027-11-20T17:29:00.123Z',
    '2026-12-20T17:29:00.123Z',
  ];
  for (const fact of facts) expect(text.split('\n')).toContain(fact);
  const joined = text.replaceAll('\n', '');
  expect(joined).toContain('run-7/step-3/réserver ✈');
  expect(joined).toContain(`cedar ${aep.policy.engine_version}`);
  expect(joined).toContain('no expiry');
  expect(joined).toContain(envelope.signatures[0].sig);
  expect(joined).toContain(inclusion.checkpoint.replaceAll('\n', ''));
  expect(links).toEqual([PAGE_URL]);
  expect(await readQrCode(bytes)).toBe(PAGE_URL);
  expect(info).toMatchObject({
    Title: `Autonomous Execution Proof ${admitted.proofId}`,
    // The metadata have the time of the verdict, so that the bytes depend on no clock.
    CreationDate: 'D:20261122080000Z',
    ModDate: 'D:20261122080000Z',
  });
  const source = Buffer.from(bytes).toString('latin1');
  for (const mark of ['/Lang (en)', '/Marked true', '/StructTreeRoot', '/DisplayDocTitle true']) {
    expect(source).toContain(mark);
  }
  const sha256 = createHash('sha256').update(pdfRequestFor().json).digest('hex');
  expect(text.split('\n')).toContain(sha256);
});

/** An approver's decision about a pending proof, and the hash of the approver's registration. */
function approvalOf(decision: 'approve' | 'reject') {
  const { approve, registration, registrationHash } = newApprover();
  const pending = { proof_id: admitted.proofId, aep_hash: '0'.repeat(64) };
  const { entry, tlog_proof } = documentFor().key;
  const activation = {
    schema_version: entry.schema_version,
    type: 'key' as const,
    time: entry.time,
    use: 'approver' as const,
    change: 'activate' as const,
    registration_hash: registrationHash,
  };
  const envelope = approve(pending, { decision });
  return { approval: { envelope, registration, entry: activation, tlog_proof }, registrationHash };
}

it('PDF export > names approver and disclosed values, and draws no label over the value beside it', async () => {
  const names = ['fact.amount', `fact.${'total_'.repeat(10)}`, 'budget.tenant_cancellations'];
  const disclosures = names.map((name): [string, string, string] => [
    '0'.repeat(64),
    name,
    '900.00',
  ]);
  const { approval, registrationHash } = approvalOf('approve');
  const { overlaps, pages } = await read({ approval, disclosures });
  expect(overlaps).toEqual([]);
  const approver = ['Approved by', 'ops-lead', 'Approver registration', registrationHash];
  for (const text of [...approver, ...names]) expect(pages.join('\n')).toContain(text);
});

describe('PDF', () => {
  const agent = { id: 'a', bound: false };
  const run = { id: admitted.proofId, seq: 0 };
  const members_hash = '0'.repeat(64);
  const outcome = { agent, parent_proof_id: admitted.proofId, result: 'failed' } as const;
  it.each<[string, PdfDocumentOptions, string | null]>([
    ['an admission', {}, 'the action named below was admitted'],
    ['a denial', { effect: 'DENY' }, 'the action named below was denied'],
    ['a rejection', { effect: 'DENY', approval: approvalOf('reject').approval }, null],
    ['an outcome', { subject: { kind: 'outcome', ...outcome } }, null],
    ['a close', { subject: { kind: 'close', agent, run, count: 0, members_hash } }, null],
  ])('of %s asserts only a decision that a policy made', async (_what, options, expected) => {
    const text = (await textOf(options)).replaceAll(/\s+/g, ' ');
    const decision = /By the policy in force when the engine accepted the request, ([^.]*)\./.exec(
      text,
    );
    expect(decision?.[1] ?? null).toBe(expected);
    expect(text).toContain('recorded, signed and in the log.');
  });
});

it.each<[string, PdfDocumentOptions, string]>([
  ['an admission', {}, 'Admitted · proof VALID'],
  ['a sandbox admission', { environment: 'sandbox' }, 'Sandbox · Admitted · proof VALID'],
  ['a denial', { effect: 'DENY' }, 'Denied · proof of the denial VALID'],
  ['a revoked proof', { revoked: ['proof'] }, 'REVOKED · Admitted'],
  ['a revoked denial', { effect: 'DENY', revoked: ['proof'] }, 'REVOKED · Denied'],
  ['an expired proof', { expired: ['proof'] }, 'EXPIRED · Admitted'],
  ['a failed proof', { verdict: 'fail' }, 'NOT ASSERTED · Admitted'],
  [
    'a proof with a revoked certificate',
    { revoked: ['certificate'] },
    'Admitted · proof VALID · certificate REVOKED',
  ],
  [
    'an outcome',
    {
      subject: {
        kind: 'outcome',
        agent: { id: 'a', bound: false },
        parent_proof_id: admitted.proofId,
        result: 'failed',
      },
    },
    'Admitted: a report that an action failed · proof VALID',
  ],
])('PDF verdict > of %s is in the headline of every page', async (_what, options, expected) => {
  const { pages } = await read(options);
  for (const page of pages) expect(page.split('\n')).toContain(expected);
});

it('PDF export > fits texts of a tenant on the page, even at their maximum length', async () => {
  const reasons = Array.from({ length: 20 }, (_, i) => `${String(i).padStart(2, '0')}-policy`);
  const intent_id = '\u{1F600}'.repeat(512);
  const { pages } = await read({
    reasons,
    subject: { kind: 'execute', intent_id, action: 'A'.repeat(128) },
  });
  const text = pages.join('\n');
  expect(text.split('\\u{1F600}').length - 1).toBe(512);
  expect(text).toContain('It replaces the character with');
  expect(await textOf()).not.toContain('It replaces the character with');
  for (const reason of reasons) expect(text.split('\n')).toContain(reason);
  expect(text).toContain('Reason 20 of 20');
  for (const page of pages) expect(page).toContain(`of ${pages.length}`);
});

it('PDF export > has the same bytes in another process and time zone', async () => {
  const once = Buffer.from(await render());
  expect(Buffer.from(await render()).equals(once)).toBe(true);

  const folder = await testFolder();
  const { json, pageUrl } = pdfRequestFor();
  await writeFile(join(folder, 'proof.json'), json);
  const thread = pathToFileURL(join(packageRoot, 'dist', 'api', 'engine', 'pdf', 'render.js'));
  const script = `
      import { readFile, writeFile } from 'node:fs/promises';
      import render from ${JSON.stringify(thread.href)};
      const json = await readFile('proof.json');
      await writeFile('proof.pdf', await render({ json, pageUrl: ${JSON.stringify(pageUrl)} }));`;
  await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    cwd: folder,
    env: { TZ: 'Pacific/Kiritimati', LANG: 'tr_TR.UTF-8' },
  });
  expect((await readFile(join(folder, 'proof.pdf'))).equals(once)).toBe(true);
});
