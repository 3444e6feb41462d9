import { expect } from 'vitest';
import { admissionEnvelope } from '../../fixtures/agent.js';
import { headersFor } from '../../fixtures/engine.js';
import { activationBody, NO_DELETIONS, overlayBody, overlayCase } from '../../fixtures/overlays.js';
import { engineTest, type Setup } from './setup.js';

export type Headers = Record<string, string>;

export const stored = async (
  { post }: Setup,
  rules?: Record<string, string>,
  own: Headers = {},
) => {
  const reply = await post('/v1/overlays', overlayBody(rules), own);
  expect(reply.status).toBe(201);
  return String(reply.json['overlay_id']);
};

/** Activates an overlay that forbids deletions. */
export async function activated(setup: Setup) {
  const id = await stored(setup, { 'no-deletions': NO_DELETIONS });
  const reply = await setup.post(`/v1/overlays/${id}/activate`, activationBody([overlayCase()]));
  expect(reply.json).toMatchObject({ overlay_id: id, active: true, unfit_rules: [] });
  return id;
}

export async function deactivate({ engine, get, key }: Setup): Promise<void> {
  const { overlays } = (await get('/v1/overlays')).json as unknown as {
    overlays: { overlay_id: string; active: boolean }[];
  };
  const id = overlays.find(({ active }) => active)?.overlay_id;
  if (id === undefined) return;
  const path = `/v1/overlays/${id}/deactivate`;
  const reply = await engine.call({ path, headers: headersFor(key) });
  expect(reply.json).toMatchObject({ overlay_id: id, active: false });
}

export const admit = ({ post }: Setup, action = 'DELETE_RECORD') =>
  post('/v1/agent/admissions', admissionEnvelope({ action }));

/** Creates tests that share one engine. After each test, no overlay is active. */
export const overlayTest = () => {
  const it = engineTest({ rateLimit: 100_000 });
  it.afterEach(async ({ setup }) => {
    await deactivate(setup);
  });
  return it;
};
