import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fact, headline, only, section, textOf, times } from '../../fixtures/page-text.js';
import { callAt, type Call, type Reply } from '../../fixtures/public-call.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';

let page: PageStates;
beforeAll(async () => {
  page = await everyPageState();
});
afterAll(() => page.snapshot.close());

const ISSUED = '2026-11-20T12:00:00.000Z';
const call = (path: string, options?: Call): Promise<Reply> => callAt(page.server, path, options);
const askFor = (id: string): Promise<Reply> => call(`/?id=${id}`);
const ask = (name: string): Promise<Reply> => askFor(page.state(name).identifier);

interface Body {
  references: {
    proof_id: string;
    members: { trust_id: string; verification_status: string; can_assert_validity: boolean }[];
  };
  verification: { verification_status: string };
}
const bodyOf = async (name: string): Promise<Body> =>
  (await call(page.state(name).jsonUrl)).body as Body;

describe('package page', () => {
  it.each([
    'package',
    'package with a revoked member',
    'package with an expired member',
    'package that is not confirmed',
    'large package',
    'shared package',
  ])('lists the members and verdicts of the body for "%s"', async (name) => {
    const { references } = await bodyOf(name);
    const { text } = await ask(name);
    const shown = only(/<ol class="members">([\s\S]*)<\/ol>\s*<\/section>/, text);
    const rows = [...shown.matchAll(/<li class="(\w+)">\s*<svg([\s\S]*?)<\/li>/g)];
    const expected = references.members.map((member, i) => ({ ...member, number: i + 1 }));
    const inOrder = [
      ...expected.filter((member) => !member.can_assert_validity),
      ...expected.filter((member) => member.can_assert_validity),
    ];
    expect(
      rows.map(([, mark, row]) => ({
        good: mark === 'good',
        number: only(/class="number">(\d+)\./, row!),
        status: only(/class="detail">(\w+)</, row!),
        link: only(/href="\/\?id=([^"]*)"/, row!),
      })),
    ).toEqual(
      inOrder.map((member) => ({
        good: member.can_assert_validity,
        number: String(member.number),
        status: member.verification_status,
        link: member.trust_id,
      })),
    );
    expect(fact('Members', text)).toMatch(new RegExp(`^${expected.length} \\(`));
  });

  it('shows members without validity in the card and first in the list', async () => {
    const { text } = await ask('large package');
    expect(fact('Members', text)).toBe('18 (1 revoked, 1 not confirmed, 16 trust established)');
    const visible = text.slice(0, text.indexOf('<details>'));
    expect(visible).toMatch(/>17\.<\/span>\s*<span class="name">Revoked</);
    expect(text.indexOf('members-title')).toBeLessThan(text.indexOf('says-not'));
    expect(fact('Members', (await ask('package')).text)).toBe('3 (all trust established)');
  });

  it('shows a members hash and neither a history nor a chain of the package', async () => {
    const { text } = await ask('package');
    expect(text).toMatch(/data-copy="[0-9a-f]{64}"\s+data-what="members hash"/);
    expect(times(section('history-title', text))).toEqual([ISSUED]);
    expect(textOf(section('history-title', text))).toContain(
      'The page of each member shows the history',
    );
    expect(text).not.toContain('id="ids-title"');
  });
});

describe('share link page', () => {
  const SHARED = ['shared', 'shared denial', 'shared and revoked', 'shared package'];
  const DARK = ['share token', 'ended share token'];

  it.each([
    ['shared', 'valid'],
    ['shared denial', 'denied'],
    ['shared package', 'package with a revoked member'],
  ])('shows for "%s" the page of "%s" with a note on sharing', async (name, other) => {
    const shared = await ask(name);
    const direct = await ask(other);
    expect(headline(shared.text)).toBe(headline(direct.text));
    for (const what of ['Status', 'Validity asserted', 'As of']) {
      expect(fact(what, shared.text)).toBe(fact(what, direct.text));
    }
    expect(textOf(shared.text)).toContain('You opened a share link');
    expect(textOf(direct.text)).not.toContain('You opened a share link');
  });

  it('offers the permanent link, without the token in link or QR code', async () => {
    const qr = (text: string): string =>
      only(/<svg class="qr".*?<path stroke[^>]* d="([^"]*)"/, text);
    for (const [name, other] of [
      ['shared', 'valid'],
      ['shared denial', 'denied'],
      ['shared package', 'package with a revoked member'],
    ] as const) {
      const { text } = await ask(name);
      expect(section('share-title', text)).not.toContain('share_');
      expect(qr(text)).toBe(qr((await ask(other)).text));
    }
  });

  it('contains the token only as the requested identifier', async () => {
    for (const name of [...SHARED, ...DARK]) {
      const { identifier, jsonUrl } = page.state(name);
      const { text } = await ask(name);
      const rest = text
        .replace(`value="${identifier}"`, '')
        .replace(`<bdi>${identifier}</bdi>`, '')
        .replace(`data-copy="${identifier}"`, '')
        .replace(`href="${jsonUrl}"`, '');
      expect(rest).not.toContain('share_');
      expect(rest).not.toContain(identifier.slice('share_'.length));
    }
    for (const { name, identifier } of page.states.filter(
      (one) => !/^share_/.test(one.identifier),
    )) {
      expect.soft((await askFor(identifier)).text, name).not.toMatch(/share_\w/);
    }
  });

  it('is not cacheable and sends no referrer', async () => {
    const tokens = [...SHARED, ...DARK].map((name) => page.state(name).identifier);
    const odd = [`${tokens[0]}x`, 'share_x', 'SHARE_x', encodeURIComponent('%73hare_x')];
    for (const identifier of [...tokens, ...odd, `share_${'x'.repeat(2000)}`, 'share_x&id=y']) {
      const { headers, text } = await askFor(identifier);
      expect(headers['cache-control']).toBe('private, no-store');
      expect(headers.etag).toBeUndefined();
      expect(headers['referrer-policy']).toBe('no-referrer');
      expect(only(/<title>([^<]*)<\/title>/, text)).not.toContain('hare_');
    }
  });

  it('lists the possible reasons for an unresolvable token without revealing the actual one', async () => {
    const [first, second] = DARK.map((name) => page.state(name).identifier);
    const pages = await Promise.all(
      [first!, second!].map(async (id) => (await askFor(id)).text.replaceAll(id, '…')),
    );
    expect(pages[0]).toBe(pages[1]);
    const shown = textOf(pages[0]!);
    expect(shown).toContain('This share link shows nothing.');
    for (const reason of ['may not exist', 'revoked', 'expired', 'not published']) {
      expect(shown).toContain(reason);
    }
    expect(shown).toContain('Which of these applies.');
    expect(pages[0]).not.toContain('class="qr"');
  });
});
