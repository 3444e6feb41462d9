import axe, { type RunOnly } from 'axe-core';
import {
  chromium,
  type Browser,
  type BrowserContextOptions,
  type Page,
  type Route,
} from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Publisher } from '#publisher/publisher';
import { chromiumArgs, chromiumPath, withoutChromium } from '../../fixtures/chromium.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';

const PHONE = { width: 360, height: 740 };
const DESKTOP = { width: 1280, height: 900 };
const RULES: RunOnly = {
  type: 'tag',
  values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
};
/** States that together show each tone and section. Only LAYOUTS are checked in dark mode at desktop size too. */
const STATES = ['sandbox', 'denied', 'not confirmed', 'shared', 'long history'];
const LAYOUTS = ['valid', 'revoked trust', 'large package'];

describe.skipIf(chromiumPath === null && process.env['CI'] === undefined)(
  `HTML page in a browser${withoutChromium}`,
  () => {
    let states: PageStates;
    let browser: Browser;
    let origin: string;

    beforeAll(async () => {
      states = await everyPageState();
      origin = states.server.url;
      browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
    });
    afterAll(async () => {
      await browser?.close();
      await states.snapshot.close();
    });

    interface Opened {
      page: Page;
      /** Every URL that the page requested. */
      requests: string[];
      /** Console errors of the browser: script errors and resources that the policy blocked. */
      complaints: string[];
    }

    afterEach(async () => {
      for (const context of browser.contexts()) await context.close();
    });

    async function open(options: BrowserContextOptions = {}): Promise<Opened> {
      const context = await browser.newContext(options);
      const page = await context.newPage();
      const requests: string[] = [];
      const complaints: string[] = [];
      page.on('request', (request) => requests.push(request.url()));
      // The console does not report a violation that the script catches.
      await page.addInitScript(
        `addEventListener('securitypolicyviolation', (one) => console.error(one.violatedDirective))`,
      );
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('console', (message) => {
        // Some states answer 404 or 503 as intended.
        if (!message.text().startsWith('Failed to load resource')) complaints.push(message.text());
      });
      return { page, requests, complaints };
    }

    const urlOf = (name: string): string =>
      `${origin}/?id=${encodeURIComponent(states.state(name).identifier)}`;

    /** Returns accessibility violations, and whether the page scrolls horizontally. */
    async function faultsOf(page: Page): Promise<string[]> {
      // Uses the debugger protocol, because the page's policy blocks injected scripts.
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(
        (runOnly) =>
          (globalThis as unknown as { axe: typeof axe }).axe.run({
            resultTypes: ['violations'],
            runOnly,
          }),
        RULES,
      );
      const overflow = await page.evaluate(
        'document.documentElement.scrollWidth - document.documentElement.clientWidth',
      );
      return [
        ...violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`),
        ...(overflow === 0 ? [] : ['scrolls sideways']),
      ];
    }

    it('has no accessibility violation, sends no third-party request and stores no data, in any state', async () => {
      const { page, requests, complaints } = await open({ viewport: PHONE });
      const pages: [string, string][] = [
        ['home', `${origin}/`],
        ['docs', `${origin}/docs`],
        ...[...LAYOUTS, ...STATES].map((name): [string, string] => [name, urlOf(name)]),
        ['two at once', `${origin}/?id=a&id=b`],
        ['hostile', `${origin}/?id=${encodeURIComponent('<b>"'.repeat(250))}`],
      ];
      for (const [name, url] of pages) {
        await page.goto(url);
        for (const details of await page.locator('summary').all()) await details.click();
        expect.soft(await faultsOf(page), name).toEqual([]);
        if (!LAYOUTS.includes(name)) continue;
        await page.emulateMedia({ colorScheme: 'dark' });
        await page.setViewportSize(DESKTOP);
        expect.soft(await faultsOf(page), `${name}, dark on a desktop`).toEqual([]);
        await page.emulateMedia({ colorScheme: 'light' });
        await page.setViewportSize(PHONE);
      }
      expect(requests.filter((url) => !url.startsWith(`${origin}/`))).toEqual([]);
      expect(complaints).toEqual([]);
      expect(await page.context().cookies()).toEqual([]);
      expect(await page.evaluate('localStorage.length + sessionStorage.length')).toBe(0);
    }, 120_000);

    it('shows the verdict without JavaScript, from a link and from the form', async () => {
      const { page } = await open({ javaScriptEnabled: false });
      await page.goto(`${origin}/`);
      await page.getByLabel('Identifier to verify').fill(states.state('revoked').identifier);
      await page.getByRole('button', { name: 'Verify' }).click();
      expect(page.url()).toBe(urlOf('revoked'));
      expect(await page.locator('h1').innerText()).toBe('Revoked proof');
      expect(await page.getByRole('button', { name: 'Copy' }).count()).toBe(0);
    });

    /** Opens a browser page at the time of the server, with a pinned log key. */
    async function openPinned(options: BrowserContextOptions = {}): Promise<Opened> {
      const opened = await open(options);
      const { logVkey, clock } = states.snapshot;
      await opened.page.clock.setFixedTime(clock.at);
      await opened.page.addInitScript(`localStorage.setItem('svc-log-vkey', '${logVkey}')`);
      return opened;
    }

    const resultOf = async (page: Page): Promise<string> => {
      const result = page.locator('#evidence-result > :has(p):not(:has-text("Verifying with"))');
      return result.innerText();
    };
    const pinnedName = (): string => states.snapshot.logVkey.split('+').slice(0, 2).join('+');

    it('verifies the answer of every route and status with a pinned key', async () => {
      const { page, requests, complaints } = await openPinned({ viewport: PHONE });
      const routeOf = (url: string) => url.slice(0, url.search(/[^/]*$/));
      const distinct = new Map(
        states.states.flatMap((one) => [
          [one.status, one],
          [routeOf(one.jsonUrl), one],
        ]),
      );
      for (const { name, status } of new Set(distinct.values())) {
        await page.goto(urlOf(name));
        const verified = `Verified in your browser with key ${pinnedName()}: status ${status}; `;
        expect.soft(await resultOf(page), name).toContain(verified);
        expect.soft(await page.getByRole('alert').count(), name).toBe(0);
      }
      expect(await faultsOf(page)).toEqual([]);
      expect(complaints).toEqual([]);
      const tokens = requests.filter((url) => url.includes('share_'));
      expect(tokens.filter((url) => !url.startsWith(`${origin}/?id=`))).toEqual([]);
    });

    it('pins a key on request, and verifies nothing without a pinned key', async () => {
      const { page, requests } = await open();
      await page.clock.setFixedTime(states.snapshot.clock.at);
      await page.goto(urlOf('not found'));
      const unpinned = 'Not verified in your browser: no key of the log is pinned here.';
      expect(await resultOf(page)).toBe(unpinned);
      expect(await page.locator('h1').innerText()).toBe('Not found');
      expect(requests.filter((url) => url.endsWith('/prove.js'))).toEqual([]);
      await page.getByRole('button', { name: 'Pin this key' }).click();
      await page.getByText(`Verified in your browser with key ${pinnedName()}`).waitFor();
      expect(await resultOf(page)).toContain('status NOT_FOUND; proofs found: 0, absent: 1;');
      await page.getByText('What this check finds').click();
      await page.getByRole('button', { name: 'Remove the pinned key' }).click();
      await page.getByText(unpinned).waitFor();
    });

    describe('with a pinned key', () => {
      let liar: TestSnapshot;
      let liarOrigin: string;
      let publisher: Publisher;
      beforeAll(async () => {
        liar = new TestSnapshot();
        liar.registry.addProof();
        liar.registry.verify();
        publisher = liar.publisher();
        await publisher.runCycle();
        liar.clock.at = states.snapshot.clock.at;
        liarOrigin = (await liar.serve(liar.publicServer())).url;
      });
      afterAll(() => liar.close());

      const htmlOf = async (name: string, from = origin): Promise<string> =>
        (await fetch(urlOf(name).replace(origin, from))).text();
      const serve = (body: string) => (route: Route) =>
        route.fulfill({ body, contentType: 'text/html; charset=utf-8' });
      const asPage = (html: Promise<string>, from: string | RegExp = '', to = '') =>
        html.then((text) => {
          const body = text.replace(from, to);
          if (body === text && from !== '') throw new Error('nothing was altered');
          return { '/?id=*': serve(body) };
        });

      it.each<[string, string, () => Promise<Record<string, (route: Route) => unknown>>, string]>([
        [
          'an answer without a member',
          'denied',
          () => asPage(htmlOf('denied'), /&quot;effect&quot;:&quot;DENY&quot;,/, ''),
          'this page contradicts the log, which proves the status VALID',
        ],
        [
          'an altered status',
          'revoked',
          () => asPage(htmlOf('revoked'), '"status">REVOKED', '"status">VALID'),
          'this page contradicts the log, which proves the status REVOKED',
        ],
        [
          'the page of another identifier',
          'not found',
          () => asPage(htmlOf('valid')),
          'this page contradicts the log, which proves the status NOT_FOUND',
        ],
        [
          'another log',
          'valid',
          () => asPage(htmlOf('valid', liarOrigin)),
          'this server names the key ',
        ],
        [
          'evidence of another log',
          'valid',
          () =>
            Promise.resolve({
              '/api/public/evidence': async (route: Route) =>
                route.fulfill({
                  response: await route.fetch({ url: `${liarOrigin}/api/public/evidence` }),
                }),
            }),
          'no signature by a pinned key',
        ],
        [
          'no evidence',
          'valid',
          () =>
            Promise.resolve({
              '/api/public/evidence': (route: Route) => route.fulfill({ status: 503 }),
            }),
          'the server sent no evidence (HTTP 503)',
        ],
      ])('shows that nothing is proved by %s', async (_lie, name, lie, why) => {
        const { page } = await openPinned({ viewport: PHONE });
        for (const [path, handler] of Object.entries(await lie())) {
          await page.route(`${origin}${path}`, handler);
        }
        await page.goto(urlOf(name));
        await page.getByRole('alert').waitFor();
        expect(await page.getByRole('alert').innerText()).toContain(why);
        expect(await page.locator('h1').innerText()).toMatch(/^Not proven/);
        expect(await page.title()).toMatch(/^Not proven: /);
        // The colour that only valid verdicts have.
        const green = `[...document.querySelectorAll('main, main *')].filter((one) =>
          ['color', 'borderLeftColor', 'stroke']
            .some((name) => getComputedStyle(one)[name] === 'rgb(23, 102, 58)')).length`;
        expect(await page.evaluate(green)).toBe(0);
        expect(await page.locator('.mark').first().isVisible()).toBe(false);
      });

      it('shows that nothing is proved by a script that never arrives', async () => {
        const { page } = await openPinned({ viewport: PHONE });
        await page.route(`${origin}/page/prove.js`, () => undefined);
        await page.goto(urlOf('valid'));
        await page.getByText('Verifying with').waitFor();
        await page.clock.fastForward(20_000);
        expect(await page.getByRole('alert').innerText()).toContain('; reload the page');
        expect(await page.locator('h1').innerText()).toMatch(/^Not proven/);
      });

      it('shows the result in a page without boxes, which an older server sent', async () => {
        const { page } = await openPinned({ viewport: PHONE });
        const old = await asPage(htmlOf('valid'), /<div role="(status|alert)"><\/div>/g);
        await page.route(`${origin}/?id=*`, old['/?id=*']);
        await page.goto(urlOf('valid'));
        expect(await resultOf(page)).toContain('Verified in your browser');
      });

      it('announces the result in a live region that was there before', async () => {
        const { page } = await openPinned({ viewport: PHONE });
        const held: Route[] = [];
        await page.route(`${origin}/page/prove.js`, (route) => void held.push(route));
        await page.goto(urlOf('valid'));
        await page.getByText('Verifying with').waitFor();
        const region = await page.$('#evidence [role="status"]');
        await held[0]!.continue();
        await page.getByText('Verified in your browser').waitFor();
        expect(await region?.innerText()).toContain('Verified in your browser');
      });

      it('shows that a replayed page is outdated, and waits for a server that lags behind', async () => {
        const { page } = await open();
        const { registry, logVkey, clock } = liar;
        await page.clock.setFixedTime(clock.at);
        await page.addInitScript(`localStorage.setItem('svc-log-vkey', '${logVkey}')`);
        const proof = registry.addProof();
        registry.verify();
        await publisher.runCycle();
        const lagging = (await liar.serve(liar.publicServer())).url;
        registry.revoke(proof);
        registry.verify();
        await publisher.runCycle();
        const current = (await liar.serve(liar.publicServer())).url;

        const url = `${current}/?id=${proof}`;
        const replayed = await fetch(url.replace(current, lagging));
        await page.route(url, serve(await replayed.text()));
        await page.goto(url);
        expect(await resultOf(page)).toMatch(/proves the status REVOKED at .*: reload it/);
        await page.unroute(url);
        const path = '/api/public/evidence';
        await page.route(
          current + path,
          async (route) => route.fulfill({ response: await route.fetch({ url: lagging + path }) }),
          { times: 1 },
        );
        await page.goto(url);
        expect(await resultOf(page)).toContain('status REVOKED; proofs found: 1');
      });

      it('shows that a replayed verdict is too old', async () => {
        const { page } = await openPinned({ viewport: PHONE });
        await page.clock.setFixedTime(states.snapshot.clock.at + 16 * 60_000);
        await page.goto(urlOf('valid'));
        await page.getByRole('alert').waitFor();
        expect(await resultOf(page)).toContain(
          'is too old by the clock of this reader: the answer was VALID',
        );
        expect(await faultsOf(page)).toEqual([]);
        await page.goto(urlOf('revoked'));
        await page.getByText('Verified in your browser with key').waitFor();
      });
    });
  },
);
