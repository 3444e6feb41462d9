import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { parseStrict } from '#protocol/json';
import { type Registration, registrationSchema } from '#protocol/schemas/approvals';
import { admitHttp, type AgentInput } from '#sdk/index';
import { addApprover } from '#sql/lifecycle/approvers';
import { activateApprovalSet, refund } from '../../fixtures/approval-world.js';
import { chromiumArgs, chromiumPath, withoutChromium } from '../../fixtures/chromium.js';
import { issueKey } from '../../fixtures/engine.js';
import { TENANT } from '../../fixtures/registry.js';
import { sdkError } from '../../fixtures/sdk-error.js';
import { openSdkWorld, type SdkWorld } from '../../fixtures/sdk-world.js';

const PHONE = { width: 375, height: 740 };
const EDDSA = -8;
const ES256 = -7;

describe.skipIf(chromiumPath === null && process.env['CI'] === undefined)(
  `page for approvals in a browser${withoutChromium}`,
  () => {
    let world: SdkWorld;
    let browser: Browser;
    let apiKey: string;
    /** The URL with a host name, because WebAuthn allows no IP address as RP ID. */
    const named = (url: string): string => url.replace('127.0.0.1', 'localhost');

    beforeAll(async () => {
      world = await openSdkWorld();
      await activateApprovalSet(world.registry);
      apiKey = await issueKey(world.registry, { scopes: ['approve'] });
      browser = await chromium.launch({ executablePath: chromiumPath!, args: chromiumArgs });
    });
    afterAll(async () => {
      await browser?.close();
      await world.close();
    });
    afterEach(async () => {
      for (const context of browser.contexts()) await context.close();
      world.network.faults.length = 0;
    });

    interface Opened {
      page: Page;
      complaints: string[];
      /** The bodies of approvals that the page sent. */
      sent: string[];
      setUserVerified(isUserVerified: boolean): Promise<void>;
    }

    /** Opens the page in a viewport of a phone. The authenticator gets requests for only one algorithm. */
    async function open(algorithm = ES256, origin = named(world.network.url)): Promise<Opened> {
      const context = await browser.newContext({ viewport: PHONE });
      const page = await context.newPage();
      const complaints: string[] = [];
      const sent: string[] = [];
      page.on('pageerror', (error) => complaints.push(error.message));
      page.on('console', (message) => {
        // Chromium warns about a list of one algorithm, and logs each request that the server rejects.
        const isExpected = /^Failed to load resource|pubKeyCredParams/.test(message.text());
        if (!isExpected) complaints.push(message.text());
      });
      page.on('request', (request) => {
        if (request.method() === 'POST') sent.push(request.postData() ?? '');
      });
      const cdp = await context.newCDPSession(page);
      await cdp.send('WebAuthn.enable');
      const { authenticatorId } = await cdp.send('WebAuthn.addVirtualAuthenticator', {
        options: {
          protocol: 'ctap2',
          transport: 'internal',
          hasUserVerification: true,
          isUserVerified: true,
          automaticPresenceSimulation: true,
        },
      });
      // Removes the other algorithm from the page's list: the virtual authenticator supports both, and would choose.
      await page.addInitScript(`
        const create = navigator.credentials.create.bind(navigator.credentials);
        navigator.credentials.create = ({ publicKey }) => create({ publicKey: {
          ...publicKey,
          pubKeyCredParams: publicKey.pubKeyCredParams.filter(({ alg }) => alg === ${algorithm}),
        } });`);
      await page.goto(`${origin}/approve`);
      const setUserVerified = async (isUserVerified: boolean): Promise<void> => {
        await cdp.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified });
      };
      return { page, complaints, sent, setUserVerified };
    }

    async function register(page: Page): Promise<Registration> {
      await page.getByLabel('Tenant ID').fill(TENANT);
      await page.getByLabel('Your name').fill('ops-lead');
      await page.getByRole('button', { name: 'Register' }).click();
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('link', { name: 'Save registration.json' }).click(),
      ]);
      const text = await readFile(await download.path());
      const registration = registrationSchema.parse(parseStrict(text));
      await addApprover(world.registry.admin, registration);
      return registration;
    }

    const held = async (input = refund()): Promise<string> =>
      (await sdkError(admitHttp(world.options, input), 'approval_required')).proofId!;

    async function show(page: Page, proofId: string): Promise<void> {
      await page.getByLabel('API key').fill(apiKey);
      await page.getByLabel('Proof ID').fill(proofId);
      await page.getByRole('button', { name: 'Show the request' }).click();
    }

    const decide = (page: Page, name: 'Approve' | 'Reject'): Promise<void> =>
      page.getByRole('button', { name, exact: true }).click();

    const alert = (page: Page): Promise<string> =>
      page.getByRole('alert').filter({ hasText: /./ }).innerText();

    it.each([
      ['ES256', ES256, 'EC'],
      ['Ed25519', EDDSA, 'OKP'],
    ])('registers a key of %s, shows a request, and approves it', async (_, algorithm, kty) => {
      const { page, complaints } = await open(algorithm);
      const registration = await register(page);
      expect(registration).toMatchObject({
        public_key: { kty },
        webauthn: { rp_id: 'localhost', origins: [named(world.network.url)] },
      });
      const proofId = await held();
      await show(page, proofId);
      await page.getByText('Requested action').waitFor();
      const rows = (await page.locator('#rows').innerText()).replaceAll('\n', ' ');
      expect(rows).toMatch(
        /agent support-1 \(claimed by the caller\) action ISSUE_REFUND .* fact amount 480\.00 /,
      );
      await decide(page, 'Approve');
      await page.getByText('The action is admitted: the agent may act.').waitFor();
      await show(page, proofId);
      expect(await alert(page)).toContain('Another approval of this proof was accepted before.');
      expect(complaints).toEqual([]);
      const stored: string = await page.evaluate('JSON.stringify([localStorage, sessionStorage])');
      expect(stored).not.toContain(apiKey);
    });

    it('rejects a request with a registration from a file, by keyboard only', async () => {
      const { page } = await open();
      const registration = await register(page);
      await page.getByRole('button', { name: 'Forget this registration' }).click();
      await page.goto(`${named(world.network.url)}/approve#${await held()}`);
      await page.reload();
      await page.getByLabel('Your registration file').setInputFiles({
        name: 'registration.json',
        mimeType: 'application/json',
        buffer: Buffer.from(JSON.stringify(registration)),
      });
      await page.getByLabel('API key').focus();
      await page.keyboard.type(apiKey);
      await page.keyboard.press('Enter');
      await page.locator('#request-title:focus').waitFor();
      await page.keyboard.press('Tab');
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      await page.getByText('The action is denied: the agent may not act.').waitFor();
    });

    it('signs nothing without user verification', async () => {
      const { page, sent, setUserVerified } = await open();
      await register(page);
      await show(page, await held());
      await page.getByText('Requested action').waitFor();
      await setUserVerified(false);
      await decide(page, 'Approve');
      expect(await alert(page)).toContain('Nothing was signed');
      expect(sent).toEqual([]);
      await setUserVerified(true);
      await decide(page, 'Approve');
      await page.getByText('The action is admitted').waitFor();
    });

    it('signs nothing when the registration is for an origin other than that of the page', async () => {
      const { page, sent } = await open();
      const registration = await register(page);
      const elsewhere = named(world.engine.url);
      await page.goto(`${elsewhere}/approve`);
      const text = JSON.stringify(JSON.stringify(registration));
      await page.evaluate(`localStorage.setItem('svc-approver-registration', ${text})`);
      await page.reload();
      await show(page, await held());
      await page.getByText('Requested action').waitFor();
      await decide(page, 'Approve');
      expect(await alert(page)).toContain(`this registration is for ${named(world.network.url)}`);
      expect(sent).toEqual([]);

      // If the page lacks its check of the origin, the server rejects the approval.
      await page.route('**/approve.js', async (route) => {
        const script = await (await route.fetch()).text();
        const body = script.replace('.includes(location.origin)', '.length');
        expect(body).not.toBe(script);
        await route.fulfill({ body, contentType: 'text/javascript' });
      });
      await page.reload();
      await show(page, await held());
      await page.getByText('Requested action').waitFor();
      await decide(page, 'Approve');
      expect(await alert(page)).toContain(
        'the signature of the approval or of its registration does not verify',
      );
    });

    it('shows a request only if it matches the signed proof', async () => {
      const { page, sent } = await open();
      await register(page);
      const proofId = await held();
      await page.getByLabel('Proof ID').fill(proofId);
      world.network.faults.push({ kind: 'changed', change: (body) => body.replace('480.', '4.') });
      await show(page, proofId);
      expect(await alert(page)).toBe(
        'Do not decide. The request does not match the signed proof: the AEP does not commit to the disclosed value.',
      );
      expect(await page.getByRole('button', { name: 'Approve', exact: true }).count()).toBe(0);
      expect(sent).toEqual([]);
    });

    it('shows characters that would reorder or hide text', async () => {
      const { page } = await open();
      await register(page);
      const agent = { id: 'support-\u{200B}\u{3164}1' };
      const tool = 'pay 21\u{202E}34\u{2066}\n\u{2028}5';
      await show(page, await held({ ...refund(), agent, tool } as AgentInput));
      await page.getByText('Requested action').waitFor();
      const texts = await page.locator('#rows dd').allTextContents();
      expect(texts).toContain('support-\u{FFFD}\u{FFFD}1 (claimed by the caller)');
      expect(texts).toContain('pay 21\u{FFFD}34\u{FFFD}\u{FFFD}\u{FFFD}5');
    });

    it('has no accessibility violation and does not scroll sideways, in light and dark mode', async () => {
      const { page } = await open();
      await register(page);
      await show(page, await held());
      await page.getByText('Requested action').waitFor();
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        await page.evaluate(axe.source);
        const { violations } = await page.evaluate(() =>
          (globalThis as unknown as { axe: typeof axe }).axe.run(),
        );
        expect.soft(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
        const overflow = 'document.documentElement.scrollWidth - innerWidth';
        expect.soft(await page.evaluate(overflow)).toBe(0);
      }
    });
  },
);
