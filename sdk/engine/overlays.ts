import {
  type Overlay,
  overlaySchema,
  type OverlayList,
  overlayListSchema,
  overlayRequestSchema,
  type OverlayTest,
  overlayTestSchema,
} from '../../protocol/schemas/overlays.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { hashSchema } from '../../protocol/schemas/primitives.js';
import { canonicalBody, canonicalHash } from '../canonical.js';
import { readAbout, validBody, validInput } from '../http/answers.js';
import { type EngineOptions, withoutUndefined } from '../options.js';
import { openEngine } from './engine.js';
import { itemsOf } from './pages.js';

/** A case of a policy, as `admin policy test` reads it; the engine validates it. */
export type PolicyCase = Readonly<Record<string, unknown>>;

/**
 * `POST /v1/overlays`: stores rules of the tenant, each one Cedar `forbid` policy, on top of the
 * operator's policy set. Rules decide nothing until `activateOverlayHttp`. The same rules have the same id. All
 * functions about overlays need a key with the scope `policy`.
 *
 * Throws `invalid_request` (`invalid_overlay`) with the line and column of each fault in `problem`.
 */
export async function storeOverlayHttp(
  options: EngineOptions,
  { rules }: { rules: Readonly<Record<string, string>> },
): Promise<Overlay> {
  const body = validBody(overlayRequestSchema, { schema_version: SCHEMA.overlayRequest, rules });
  const request = { method: 'POST', path: '/v1/overlays', body, expected: [201] } as const;
  const answer = await openEngine(options).read(request);
  return readAbout(answer, overlaySchema, 'overlay', { overlay_id: canonicalHash(rules) });
}

/** `GET /v1/overlays`: the overlays of the tenant, the newest first. */
export function listOverlaysHttp(
  options: EngineOptions,
): AsyncGenerator<OverlayList['overlays'][number], void, undefined> {
  return itemsOf(options, '/v1/overlays', overlayListSchema, (page) => page.overlays);
}

/**
 * `POST /v1/overlays/{overlay_id}/test`: decides cases with the overlay, and, with `since`,
 * evaluates the admissions of the tenant since that time. Records nothing.
 */
export async function testOverlayHttp(
  options: EngineOptions,
  input: { overlay_id: string; cases?: readonly PolicyCase[]; since?: string },
): Promise<OverlayTest> {
  const { cases, overlay_id, since } = input;
  const document = {
    schema_version: SCHEMA.overlayTestRequest,
    ...withoutUndefined({ cases, since }),
  };
  const answer = await post(options, overlay_id, 'test', document);
  return readAbout(answer, overlayTestSchema, 'overlay', { overlay_id });
}

/**
 * `POST /v1/overlays/{overlay_id}/activate`: the overlay applies to admissions that are accepted from now on. Every
 * case must pass, and each rule must decide at least one case.
 *
 * Throws `invalid_request` (`overlay_untested`) otherwise.
 */
export async function activateOverlayHttp(
  options: EngineOptions,
  { cases, overlay_id }: { overlay_id: string; cases: readonly PolicyCase[] },
): Promise<Overlay> {
  const document = { schema_version: SCHEMA.overlayActivation, cases };
  const answer = await post(options, overlay_id, 'activate', document);
  return readAbout(answer, overlaySchema, 'active overlay', { overlay_id, active: true });
}

/** `POST /v1/overlays/{overlay_id}/deactivate`: only the operator's policy set decides from now on. */
export async function deactivateOverlayHttp(
  options: EngineOptions,
  { overlay_id }: { overlay_id: string },
): Promise<Overlay> {
  const answer = await post(options, overlay_id, 'deactivate');
  return readAbout(answer, overlaySchema, 'inactive overlay', { overlay_id, active: false });
}

function post(options: EngineOptions, id: string, action: string, document?: object) {
  const path = `/v1/overlays/${validInput(hashSchema, id)}/${action}`;
  const body = document === undefined ? {} : { body: canonicalBody(document) };
  return openEngine(options).read({ method: 'POST', path, ...body });
}
