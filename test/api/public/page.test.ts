import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lookupUrl } from '#api/public/page/document';
import { TRUST_CHAIN_SEQUENCE } from '#protocol/status';
import { fact, headline, textOf } from '../../fixtures/page-text.js';
import { callAt, type Call, type Reply } from '../../fixtures/public-call.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';

let page: PageStates;
beforeAll(async () => {
  page = await everyPageState();
});
afterAll(() => page.snapshot.close());

const call = (path: string, { base, ...options }: Call & { base?: string } = {}): Promise<Reply> =>
  callAt(base === undefined ? page.server : { url: base }, path, options);
const ask = (identifier: string, options?: Call & { base?: string }): Promise<Reply> =>
  call(`/?id=${encodeURIComponent(identifier)}`, options);

describe('verdict page', () => {
  it('shows the same verdict as the JSON route, for every status', async () => {
    for (const { name, identifier, jsonUrl, ...expected } of page.states) {
      const shown = await ask(identifier);
      const json = await call(jsonUrl);
      const body = JSON.parse(json.text) as {
        verification_status?: string;
        can_assert_validity?: boolean;
        verification?: { verification_status: string; can_assert_validity: boolean };
      };
      const verdict = body.verification ?? body;
      expect.soft(fact('Status', shown.text), name).toBe(verdict.verification_status);
      expect.soft(verdict.verification_status, name).toBe(expected.status);
      expect.soft(shown.status, name).toBe(json.status);
      expect.soft(shown.status, name).toBe(expected.http);
      expect.soft(headline(shown.text), name).toBe(expected.headline);
      expect.soft(shown.text, name).toContain(`<title>${expected.headline} – Public`);
      const asserts = verdict.can_assert_validity === true;
      const asserted = fact('Validity asserted', shown.text).split(',')[0];
      expect.soft(asserted, name).toBe(asserts ? 'Yes' : 'No');
      const isPackage = shown.text.includes('<h2 id="members-title">');
      expect.soft(shown.text.includes('<dt>Since</dt>'), name).toBe(asserts && !isPackage);
      // A valid denial grants no permission, so its page has no positive mark or headline.
      const isGood = asserts && !/Denied|Report/.test(expected.headline);
      expect.soft(shown.text.includes('class="verdict good"'), name).toBe(isGood);
      if (!isGood) {
        expect.soft(expected.headline, name).not.toMatch(/valid|verified|passes|established/i);
      }
      expect.soft(shown.text, name).toContain(`href="${jsonUrl.replaceAll('&', '&amp;')}"`);
      expect.soft(shown.headers['cache-control'], name).toBe(json.headers['cache-control']);
      for (const header of [
        'x-svc-tree-size',
        'x-svc-snapshot-generation',
        'x-svc-snapshot-issued-at',
      ]) {
        expect.soft(shown.headers[header], name).toBe(json.headers[header]);
      }
    }
  });

  it.each(['valid', 'denied'])(
    'names log, key, time, hashes, downloads and trust chain for "%s"',
    async (name) => {
      const { identifier, jsonUrl } = page.state(name);
      const { text } = await ask(identifier);
      const body = JSON.parse((await call(jsonUrl)).text) as {
        integrity: Record<string, string>;
        downloads: Record<string, string>;
        references: Record<string, string>;
        trust_chain: { sequence: string[] };
      };
      const { log_origin, leaf_index, key_id, aep_hash, proof_record_hash, accepted_at } =
        body.integrity;
      for (const value of [log_origin, key_id, aep_hash, proof_record_hash]) {
        expect(textOf(text)).toContain(value);
      }
      expect(fact('Entry', text)).toBe(`${leaf_index}, counting from 0, of 57`);
      expect(text).toContain(`<time datetime="${accepted_at}">20 November 2026, 12:00:00`);
      for (const [what, value] of [
        ['AEP hash', aep_hash],
        ['proof record hash', proof_record_hash],
        ['key id', key_id],
        ['identifier', identifier],
      ]) {
        expect(text).toMatch(new RegExp(`data-copy="${value}"\\s+data-what="${what}"\\s+hidden`));
      }
      for (const path of Object.values(body.downloads)) {
        expect(text).toContain(`<a href="${path}">`);
        expect((await call(path)).status).toBe(200);
      }
      for (const id of Object.values(body.references)) {
        expect(text).toContain(`<a href="/?id=${id}">`);
      }
      const chain = [...text.matchAll(/<li class="(reached|missing)[^"]*">([\s\S]*?)<\/li>/g)];
      const { sequence } = body.trust_chain;
      expect(chain.map(([, state]) => state === 'reached')).toEqual(
        TRUST_CHAIN_SEQUENCE.map((link) => sequence.includes(link)),
      );
      expect(
        chain.map(([, , link]) =>
          textOf(link!)
            .toLowerCase()
            .replace(/ (not )?in .*/, ''),
        ),
      ).toEqual(TRUST_CHAIN_SEQUENCE.map((link) => link.replace('_', ' ')));
    },
  );

  it('never uses the Host header of a request in a link', async () => {
    const { snapshot } = page;
    const { url: base } = await snapshot.serve(snapshot.publicServer());
    const askAs = (name: string, host: string, from?: string) =>
      ask(page.state(name).identifier, { ...(from && { base: from }), headers: { Host: host } });
    for (const name of ['valid', 'shared', 'package', 'not found']) {
      for (const from of [undefined, base]) {
        const { text } = await askAs(name, 'registry.example', from);
        expect((await askAs(name, 'evil.example', from)).text).toBe(text);
      }
    }
    const { text } = await askAs('valid', 'evil.example', base);
    const link = `/?id=${page.state('valid').identifier}`;
    expect(text).toContain(`<a href="${link}">${link}</a>`);
    expect(text).not.toContain('class="qr"');
  });
});

describe('any HTML page', () => {
  const paths = (): string[] => [
    '/',
    ...page.states.map(({ identifier }) => `/?id=${identifier}`),
    '/?id=a&id=b',
    `/?id=${'x'.repeat(2000)}`,
  ];

  it('allows only resources of its own origin and sends no Referer header', async () => {
    for (const path of paths()) {
      const { headers, text } = await call(path);
      expect(headers['content-type']).toBe('text/html; charset=utf-8');
      expect(headers['content-security-policy']).toBe(
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
          "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
      );
      expect(headers['referrer-policy']).toBe('no-referrer');
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['set-cookie']).toBeUndefined();
      expect(text).not.toMatch(/\sstyle=|<style|\son[a-z]+=|javascript:|<script(?! src=)/i);
      const outside = [...text.matchAll(/(?:href|src|action)="(?!\/(?!\/)|#)([^"]*)"/g)];
      expect(outside).toEqual([]);
    }
  });
});

describe('identifier on the HTML page', () => {
  it.each([
    ['markup', '<script>alert(1)</script>'],
    ['an attribute', '" autofocus onfocus="alert(1)'],
    ['single quotes', "' onclick='alert(1)"],
    ['a URL', 'javascript:alert(1)'],
    ['a NUL', '\0'],
    ['a header injection', 'a\r\nSet-Cookie: a=b'],
    ['text that changes the reading direction', '\u202Egnp.exe\u2066'],
    ['the name of a property of every object', '__proto__'],
    ['1,024 characters', '<'.repeat(1024)],
  ])('is shown as plain text when it is %s', async (_what, identifier) => {
    const { status, headers, text } = await ask(identifier);
    expect(status).toBe(200);
    expect(headers['set-cookie']).toBeUndefined();
    expect(fact('Status', text)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(text.match(/<script\b/g)).toHaveLength(2);
    expect(text).not.toMatch(/<(b|bdi|code)>[^<]*(\u202E|\u2066|\0)/);
    const echoed = fact('Identifier', text);
    expect(Array.from(echoed).length).toBeLessThanOrEqual(121);
    if (/^[\x21-\x7e]{1,120}$/.test(identifier)) expect(echoed).toBe(identifier);
    // The tags equal those of the page for a harmless identifier.
    const skeleton = (markup: string): string[] =>
      (markup.match(/<[^>]*>/g) ?? []).map((tag) => tag.replace(/="[^"]*"/g, ''));
    expect(skeleton(text)).toEqual(skeleton((await ask('anything')).text));
  });

  it.each([
    ['too long', () => `/?id=${'a'.repeat(1025)}`, 'at most 1,024 characters'],
    ['repeated', () => '/?id=a&id=b', 'one identifier at a time'],
  ])('is rejected with 400 when it is %s', async (_what, path, detail) => {
    const { status, headers, text } = await call(path());
    expect(status).toBe(400);
    expect(headers['cache-control']).toBe('no-store');
    expect(headline(text)).toBe('This cannot be looked up');
    expect(textOf(text)).toContain(detail);
    expect(text).not.toContain('aaaa');
    expect(text).not.toContain('<dt>Status</dt>');
  });
});

describe('HTML page without a valid snapshot', () => {
  let servers: PublicServers;
  beforeAll(async () => {
    servers = await openPublicServers();
  });
  afterAll(() => servers.close());

  it.each([
    ['missing', 'empty', /No snapshot has been published yet/],
    ['expired', 'expired', /was valid until 2026-11-20T12:15:00.000Z/],
    ['unreadable', 'unreadable', /cannot be read right now/],
  ] as const)('shows no verdict when the snapshot is %s', async (_what, which, why) => {
    const { url: base } = servers[which].server;
    for (const id of [servers.proof, servers.revoked, servers.denied, servers.shareToken]) {
      const json = await call(lookupUrl(id), { base });
      const { status, headers, text } = await ask(id, { base });
      expect([status, json.status]).toEqual([503, 503]);
      expect(headers['retry-after']).toBe(json.headers['retry-after']);
      expect(headers['cache-control']).toBe(json.headers['cache-control']);
      expect(headline(text)).toBe('No verdict right now');
      expect(textOf(text)).toMatch(why);
      expect(text).not.toMatch(/<dt>Status|VALID|REVOKED|EXPIRED|NOT_FOUND|class="qr"/);
    }
    const home = await call('/', { base });
    expect(home.status).toBe(which === 'unreadable' ? 200 : 503);
    if (which === 'expired') expect(textOf(home.text)).toContain('24 hours before this page');
  });
});
