import axe, { type RunOnly } from 'axe-core';
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { chromiumArgs, chromiumPath, withoutChromium } from '../../fixtures/chromium.js';
import { everyPageState, type PageStates } from '../../fixtures/public-page.js';

const SIZES = [
  ['phone', 360, 740],
  ['desktop', 1280, 900],
] as const;
const ALL_RULES: RunOnly = {
  type: 'tag',
  values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
};
const COLOURS: RunOnly = { type: 'rule', values: ['color-contrast', 'link-in-text-block'] };
/** In the dark a page has other colours and nothing else, so the rest is looked at in the light. */
const SCHEMES = [
  ['light', ALL_RULES],
  ['dark', COLOURS],
] as const;

describe.skipIf(chromiumPath === null && process.env['CI'] === undefined)(
  `the page in a browser${withoutChromium}`,
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
      /** What the browser complained of: errors of the script, and what the policy stopped. */
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
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('console', (message) => {
        // 404 and 503 pages are intended.
        if (!message.text().startsWith('Failed to load resource')) complaints.push(message.text());
      });
      return { page, requests, complaints };
    }

    const urlOf = (name: string): string =>
      `${origin}/?id=${encodeURIComponent(states.state(name).identifier)}`;

    /** One state of each kind of page: aliases of an identifier look the same. */
    function distinct(): string[] {
      const byLook = new Map(states.states.map(({ headline, name }) => [headline, name]));
      const alike = ['valid', 'revoked trust', 'not confirmed', 'package', 'large package'];
      return [...new Set([...byLook.values(), ...alike, 'outside the window', 'share token'])];
    }

    /** Through the debugger: the page's own policy would not let it in. */
    const bringAxe = (page: Page): Promise<unknown> => page.evaluate(axe.source);

    async function violations(page: Page, rules = ALL_RULES): Promise<string[]> {
      const { violations: found } = await page.evaluate(
        (runOnly) =>
          (globalThis as unknown as { axe: typeof axe }).axe.run({
            resultTypes: ['violations'],
            runOnly,
          }),
        rules,
      );
      return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' ')}`);
    }

    /** On a phone and on a desktop, in the light and in the dark. */
    async function expectAccessible(page: Page, name: string): Promise<void> {
      await bringAxe(page);
      for (const [size, width, height] of SIZES) {
        await page.setViewportSize({ width, height });
        for (const [colorScheme, rules] of SCHEMES) {
          await page.emulateMedia({ colorScheme });
          const where = `${name}: ${size}, ${colorScheme}`;
          expect.soft(await violations(page, rules), where).toEqual([]);
          const overflow = await page.evaluate(
            'document.documentElement.scrollWidth - document.documentElement.clientWidth',
          );
          expect.soft(overflow, `${where}: scrolls sideways`).toBe(0);
        }
      }
    }

    it('has no accessibility violation in any state, size or colour scheme', async () => {
      const { page, requests, complaints } = await open();
      const pages: [string, string][] = [
        ['home', `${origin}/`],
        ...distinct().map((name): [string, string] => [name, urlOf(name)]),
        ['two at once', `${origin}/?id=a&id=b`],
        ['hostile', `${origin}/?id=${encodeURIComponent('<b>"'.repeat(250))}`],
      ];
      for (const [name, url] of pages) {
        await page.goto(url);
        for (const details of await page.locator('summary').all()) await details.click();
        await expectAccessible(page, name);
      }
      expect(requests.filter((url) => !url.startsWith(`${origin}/`))).toEqual([]);
      expect(complaints).toEqual([]);
    }, 120_000);

    it('has no accessibility violation without a valid snapshot', async () => {
      const { page } = await open();
      const { clock } = states.snapshot;
      const before = clock.at;
      clock.at += 3_600_000;
      await page.goto(urlOf('valid'));
      clock.at = before;
      expect(await page.locator('h1').innerText()).toBe('No verdict right now');
      await expectAccessible(page, 'no verdict');
    }, 60_000);

    it('shows the verdict without JavaScript, by link and by form', async () => {
      const { page } = await open({ javaScriptEnabled: false });
      await page.goto(`${origin}/`);
      await page.getByLabel('Identifier to verify').fill(states.state('revoked').identifier);
      await page.getByRole('button', { name: 'Verify' }).click();
      expect(page.url()).toBe(urlOf('revoked'));
      expect(await page.locator('h1').innerText()).toBe('Revoked proof');
      expect(await page.getByRole('button', { name: 'Copy' }).count()).toBe(0);
    });

    it.each(['large package', 'long history'])(
      'shows every row of "%s" without JavaScript, by keyboard, and in print',
      async (name) => {
        const { page } = await open({
          javaScriptEnabled: false,
          viewport: { width: 360, height: 740 },
        });
        await page.goto(urlOf(name));
        const folded = page.locator('.more li').last();
        expect(await folded.isVisible()).toBe(false);
        await page.emulateMedia({ media: 'print' });
        expect(await folded.isVisible()).toBe(true);
        await page.emulateMedia({ media: 'screen' });
        await page.locator('.more summary').focus();
        await page.keyboard.press('Enter');
        expect(await folded.isVisible()).toBe(true);
      },
    );

    it('sends no referrer for a share link', async () => {
      const { page } = await open();
      await page.goto(urlOf('shared'));
      const [request] = await Promise.all([
        page.waitForRequest((one) => one.url().includes('/api/public/verify/share/')),
        page.getByRole('link', { name: 'The same answer as JSON' }).click(),
      ]);
      expect(request.headers()['referer']).toBeUndefined();
    });

    it('works with only a keyboard', async () => {
      const { page } = await open();
      await page.goto(`${origin}/`);
      const focused = (): Promise<string> =>
        page.evaluate('document.activeElement.textContent.trim() || document.activeElement.id');
      const stops: string[] = [];
      for (let i = 0; i < 3; i++) {
        await page.keyboard.press('Tab');
        stops.push(await focused());
      }
      expect(stops).toEqual(['Skip to the answer', 'Public verification', 'id']);
      await page.keyboard.type(states.state('denied').identifier);
      await page.keyboard.press('Enter');
      await page.waitForURL(urlOf('denied'));
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      expect(await page.evaluate('document.activeElement.id')).toBe('main');
    });

    it.each(['identifier', 'AEP hash', 'proof record hash', 'key id', 'link'])(
      'copies the %s and announces it',
      async (what) => {
        const { page, complaints } = await open({
          permissions: ['clipboard-read', 'clipboard-write'],
        });
        await page.goto(urlOf('sandbox'));
        const button = page.getByRole('button', { name: `Copy ${what}`, exact: true });
        const expected = await button.getAttribute('data-copy');
        await button.click();
        await page
          .getByRole('status')
          .filter({ hasText: `${what} copied` })
          .waitFor({ state: 'attached' });
        expect(await page.evaluate('navigator.clipboard.readText()')).toBe(expected);
        expect(await page.locator('main').innerText()).toContain(expected);
        expect(complaints).toEqual([]);
      },
    );

    it('copies without the clipboard API', async () => {
      const { page } = await open({ permissions: ['clipboard-read', 'clipboard-write'] });
      await page.addInitScript('navigator.clipboard.writeText = () => Promise.reject(new Error())');
      await page.goto(urlOf('valid'));
      await page.getByRole('button', { name: 'Copy identifier' }).click();
      await page
        .getByRole('status')
        .filter({ hasText: 'identifier copied' })
        .waitFor({ state: 'attached' });
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(
        states.state('valid').identifier,
      );
    });

    it('prints the verdict without interactive elements', async () => {
      const { page } = await open();
      await page.goto(urlOf('revoked'));
      await page.emulateMedia({ media: 'print' });
      expect(await page.locator('h1').isVisible()).toBe(true);
      expect(await page.locator('.qr').isVisible()).toBe(true);
      expect(await page.locator('form').isVisible()).toBe(false);
      expect(await page.locator('.copy').first().isVisible()).toBe(false);
    });

    it('stores no data in the browser', async () => {
      const { page } = await open();
      await page.goto(urlOf('valid'));
      expect(await page.context().cookies()).toEqual([]);
      expect(await page.evaluate('localStorage.length + sessionStorage.length')).toBe(0);
    });
  },
);
