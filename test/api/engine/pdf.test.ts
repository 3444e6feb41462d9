import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { loadFonts, renderPdf } from '#api/engine/pdf/render';
import { packageRoot } from '#runtime/process/package-root';
import {
  documentFor,
  LOOKUP_URL,
  pdfRequestFor,
  type PaperOptions,
} from '../../fixtures/papers.js';
import { readPdf } from '../../fixtures/pdf.js';
import { admitted, logVkey } from '../../fixtures/worked-log.js';

const fonts = loadFonts();
const render = (options: PaperOptions = {}) => renderPdf(pdfRequestFor(options), fonts);
const read = async (options: PaperOptions = {}) => readPdf(await render(options));
const textOf = async (options: PaperOptions = {}) => (await read(options)).pages.join('\n');

describe('PDF export', () => {
  it('contains every fact of the proof', async () => {
    const document = documentFor();
    const text = await textOf();
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
      document.request_hash,
      document.response_hash,
      aep.key_id,
      String(inclusion.leaf_index),
      String(inclusion.tree_size),
      ...inclusion.path,
      logVkey,
      LOOKUP_URL,
      '2027-11-20T17:29:00.123Z',
      '2026-12-20T17:29:00.123Z',
    ];
    for (const fact of facts) expect(text.split('\n')).toContain(fact);
    const joined = text.replaceAll('\n', '');
    expect(joined).toContain('run-7/step-3/réserver ✈');
    expect(joined).toContain(`cedar ${aep.policy.engine_version}`);
    expect(joined).toContain('no end');
    expect(joined).toContain(envelope.signatures[0].sig);
    expect(joined).toContain(inclusion.checkpoint.replaceAll('\n', ''));
    const sha256 = createHash('sha256').update(pdfRequestFor().json).digest('hex');
    expect(text.split('\n')).toContain(sha256);
  });

  it('has page numbers and the proof id on each page', async () => {
    const { pages } = await read();
    pages.forEach((page, at) => {
      expect(page).toContain(`${at + 1} of ${pages.length}`);
      expect(page).toContain(admitted.proofId);
    });
  });

  it('attaches the export byte for byte', async () => {
    const { json } = pdfRequestFor();
    const { attachments, pages } = await read();
    expect(Object.keys(attachments)).toEqual([`${admitted.proofId}.json`]);
    expect(Buffer.from(attachments[`${admitted.proofId}.json`]!)).toEqual(Buffer.from(json));
    expect(pages[0]!.replaceAll('\n', ' ')).toContain(
      `The attached file ${admitted.proofId}.json is the proof itself`,
    );
    const source = Buffer.from(await render()).toString('latin1');
    expect(source).toMatch(/\/AFRelationship \/Data/);
    expect(source).toMatch(/\/Subtype \/application#2[fF]json/);
  });

  it('has language, title and structure for screen readers', async () => {
    const { info } = await read();
    expect(info).toMatchObject({ Title: `Autonomous Execution Proof ${admitted.proofId}` });
    const source = Buffer.from(await render()).toString('latin1');
    expect(source).toMatch(/\/Lang \(en\)/);
    expect(source).toMatch(/\/Marked true/);
    expect(source).toMatch(/\/StructTreeRoot/);
    expect(source).toMatch(/\/DisplayDocTitle true/);
  });

  it('links to the public lookup', async () => {
    expect((await read()).links).toEqual([LOOKUP_URL]);
  });
});

describe('PDF verdict', () => {
  const headline = async (options: PaperOptions) => {
    const { pages } = await read(options);
    return { first: pages[0]!, rest: pages.slice(1) };
  };

  it.each<[string, PaperOptions, string]>([
    ['an admission', {}, 'Admitted · proof VALID'],
    ['a sandbox’s', { environment: 'sandbox' }, 'Sandbox · Admitted · proof VALID'],
    ['a denial', { effect: 'DENY' }, 'Denied · proof of the denial VALID'],
    ['a revoked one', { revoked: ['proof'] }, 'REVOKED · Admitted'],
    ['a revoked denial', { effect: 'DENY', revoked: ['proof'] }, 'REVOKED · Denied'],
    ['an expired one', { expired: ['proof'] }, 'EXPIRED · Admitted'],
    ['one that failed', { verdict: 'fail' }, 'NOT ASSERTED · Admitted'],
    [
      'one whose certificate is revoked',
      { revoked: ['certificate'] },
      'Admitted · proof VALID · certificate REVOKED',
    ],
    [
      'a report',
      {
        subject: { kind: 'outcome', parent_proof_id: admitted.proofId, result: 'failed' },
      },
      'Admitted: a report that an action failed · proof VALID',
    ],
  ])('of %s is the headline of every page', async (_what, options, expected) => {
    const { first, rest } = await headline(options);
    expect(first.split('\n')).toContain(expected);
    for (const page of rest) expect(page.split('\n')).toContain(expected);
  });

  it('is white on black when nothing is asserted', async () => {
    const band = /^56 [\d.]+ 483[\d.]* [\d.]+ re\n\/DeviceRGB cs\n0 0 0 scn\nf$/m;
    const source = async (options: PaperOptions) =>
      Buffer.from(await render(options)).toString('latin1');
    expect(await source({})).not.toMatch(band);
    expect(await source({ effect: 'DENY' })).not.toMatch(band);
    expect(await source({ revoked: ['proof'] })).toMatch(band);
    expect(await source({ expired: ['proof'] })).toMatch(band);
    expect(await source({ verdict: 'fail' })).toMatch(band);
  });

  it('lists what it does not assert', async () => {
    expect(await textOf()).toContain('That the action was carried out, or how it ended');
    expect(await textOf({ effect: 'DENY' })).toContain('That the action was not carried out');
    expect(await textOf({ environment: 'sandbox' })).toContain('Anything about live execution');
  });
});

describe('PDF trust chain', () => {
  const steps = async (options: PaperOptions) => {
    const text = await textOf(options);
    return text.slice(text.indexOf('Trust chain'), text.indexOf('Place in the log')).split('\n');
  };

  it('lists the steps from execution to trust', async () => {
    const names = ['execution', 'evidence', 'verification', 'passport', 'certificate'];
    const all = [...names, 'trust established'];
    expect((await steps({})).filter((line) => all.includes(line))).toEqual(all);
  });

  it('ends with the verification for a denial', async () => {
    const lines = await steps({ effect: 'DENY' });
    expect(lines).toContain('verification');
    for (const name of ['passport', 'certificate', 'trust established']) {
      expect(lines).not.toContain(name);
    }
    expect(lines.join(' ')).toContain('The chain of a denial ends with its verification');
  });
});

describe('PDF user text', () => {
  it('keeps every character and explains escapes', async () => {
    const text = await textOf({
      subject: { kind: 'execute', intent_id: '预订 حجز 😀 \u202Ex', action: 'BOOK' },
    });
    const joined = text.replaceAll('\n', '');
    for (const escape of ['\\u{9884}', '\\u{8BA2}', '\\u{62D}', '\\u{1F600}', '\\u{202E}']) {
      expect(joined).toContain(escape);
    }
    expect(joined).not.toMatch(/[\u0590-\u08ff\u202e]/);
    expect(text).toContain('It replaces the character with');
    expect(await textOf()).not.toContain('It replaces the character with');
  });

  it('fits at maximum length', async () => {
    const reasons = Array.from({ length: 20 }, (_, i) => `${String(i).padStart(2, '0')}-policy`);
    const intent_id = '\u{1F600}'.repeat(512);
    const { pages } = await read({
      reasons,
      subject: { kind: 'execute', intent_id, action: 'A'.repeat(128) },
    });
    const text = pages.join('\n');
    expect(text.split('\\u{1F600}').length - 1).toBe(512);
    for (const reason of reasons) expect(text.split('\n')).toContain(reason);
    expect(text).toContain('Reason 20 of 20');
    for (const page of pages) expect(page).toContain(`of ${pages.length}`);
  });
});

describe('PDF determinism', () => {
  it('gives the same bytes in another process and time zone', async () => {
    const once = Buffer.from(await render());
    expect(Buffer.from(await render()).equals(once)).toBe(true);

    const folder = await mkdtemp(join(tmpdir(), 'svc-pdf-'));
    try {
      const { json, lookupUrl } = pdfRequestFor();
      await writeFile(join(folder, 'proof.json'), json);
      const thread = pathToFileURL(join(packageRoot, 'dist', 'api', 'engine', 'pdf', 'thread.js'));
      const script = `
        import { readFile, writeFile } from 'node:fs/promises';
        import render from ${JSON.stringify(thread.href)};
        const json = await readFile('proof.json');
        await writeFile('proof.pdf', await render({ json, lookupUrl: ${JSON.stringify(lookupUrl)} }));`;
      await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
        cwd: folder,
        env: { TZ: 'Pacific/Kiritimati', LANG: 'tr_TR.UTF-8' },
      });
      expect((await readFile(join(folder, 'proof.pdf'))).equals(once)).toBe(true);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('gives a document id per export', async () => {
    const ids = await Promise.all(
      [{}, { revoked: ['proof'] as const }, { reasons: ['other'] }].map(
        async (options) => (await read(options)).fingerprint,
      ),
    );
    expect(new Set(ids).size).toBe(3);
  });

  it('uses only the time of the verdict', async () => {
    const { info } = await read();
    expect(info).toMatchObject({
      CreationDate: 'D:20261122080000Z',
      ModDate: 'D:20261122080000Z',
    });
    const source = Buffer.from(await render()).toString('latin1');
    const times = source.match(/D:\d+[^)]*/g);
    expect(times?.length).toBeGreaterThan(0);
    expect(new Set(times)).toEqual(new Set(['D:20261122080000Z']));
  });
});
