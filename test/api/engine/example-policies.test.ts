import { join } from 'node:path';
import { expect } from 'vitest';
import { readPolicyFolder } from '#policy/policy-set';
import { packageRoot } from '#runtime/process/files';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { activateSet } from '../../fixtures/approval-world.js';
import { activationBody, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { missingTools, shellBlocks, withoutTools, workplace } from '../../fixtures/other-tools.js';
import { engineTest } from './setup.js';

const it = engineTest();

type Fields = Record<string, unknown>;

const euros = (amount: string): Fields => ({ amount: { decimal: amount }, currency: 'EUR' });

it.skipIf(missingTools.length > 0 && process.env['CI'] === undefined)(
  `documented commands recompute a decision from a disclosed export${withoutTools}`,
  async ({ setup }) => {
    const policies = join(packageRoot, 'examples/policies');
    await activateSet(setup.registry.admin, await readPolicyFolder(join(policies, 'daily-limit')));
    const key = await setup.keyFor({ restriction: { agent_id: 'support-3' } });
    const send = async (amount: string): Promise<string> => {
      const body = admissionEnvelope({
        action: 'ISSUE_REFUND',
        facts: euros(amount),
        agent: { id: 'support-3' },
      });
      const { json } = await setup.post('/v1/agent/admissions', body, { 'X-Svc-Api-Key': key });
      return (json['registry_proof_id'] ??
        (json['receipt'] as Fields)['registry_proof_id']) as string;
    };
    const [admitted, denied] = [await send('100.00'), await send('1950.00')];
    await setup.publish();
    const place = await workplace({});
    const [block = ''] = await shellBlocks('### Disclosed values');
    const recompute = async (id: string, disclosed: string, set: string, option = '') => {
      const { bytes } = await setup.get(`/v1/proofs/${id}/export?disclose=${disclosed}`);
      await place.write('proof.json', bytes);
      const admin = `node ${join(packageRoot, 'dist/programs/admin.js')}`;
      const commands = block
        .replace('npm run --silent admin --', admin)
        .replace('policies/2026-12', join(policies, set))
        .replace('case.json --json', `case.json --json ${option}`);
      return place.paste(commands).then(
        () => true,
        () => false,
      );
    };
    const counted = 'amount,currency,budget.daily_refunds';
    expect(await recompute(denied, counted, 'daily-limit')).toBe(true);
    expect(await recompute(denied, 'amount,currency', 'daily-limit')).toBe(false);
    expect(await recompute(admitted, counted, 'daily-limit')).toBe(true);
    // The policy set `refunds` makes the same decision as `daily-limit`, but has a different digest.
    expect(await recompute(admitted, 'amount,currency', 'refunds')).toBe(false);

    const rule = 'forbid (principal, action, resource) when { context.facts has currency };';
    const rules = { 'no-refunds': rule };
    const { json } = await setup.post('/v1/overlays', overlayBody(rules));
    const input = { ...overlayCase('ISSUE_REFUND').input, facts: euros('1.00') };
    const body = activationBody([{ name: 'refund', input, expect: 'DENY' }]);
    await setup.post(`/v1/overlays/${String(json['overlay_id'])}/activate`, body);
    const forbidden = await send('3.00');
    await setup.publish();
    await place.write('no-refunds.cedar', Buffer.from(rule));
    expect(await recompute(forbidden, counted, 'daily-limit', '--overlay .')).toBe(true);
    expect(await recompute(forbidden, counted, 'daily-limit')).toBe(false);
  },
  120_000,
);
