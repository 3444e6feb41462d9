import { canonicalBytes } from '#protocol/canonical-json';
import type { Caller } from '../http/authenticate.js';
import { exportDocument } from './export-document.js';
import type { EngineDeps } from '../operation.js';
import { RendererBusyError, RenderTimeoutError } from '../pdf/pool.js';
import { Problem } from '../http/problem.js';

/**
 * The paper of what `format=json` gives, with those bytes inside it.
 *
 * @throws Problem as `exportDocument`, renderer_busy, render_timeout
 */
export async function exportPdf(
  deps: EngineDeps,
  caller: Caller,
  proofId: string,
): Promise<Uint8Array> {
  const document = await exportDocument(deps, caller, proofId);
  const lookupUrl = `${deps.ctx.publicUrl}/api/public/verify/proof/${document.proof_id}`;
  try {
    const request = { json: canonicalBytes(document), lookupUrl };
    return await deps.ctx.pdf.render(request, caller.tenantNo);
  } catch (cause) {
    throw problemOf(cause);
  }
}

function problemOf(cause: unknown): unknown {
  if (cause instanceof RendererBusyError) {
    return new Problem(
      'renderer_busy',
      'Try again shortly. The formats json and aep-json do not wait.',
      {
        headers: { 'Retry-After': '2' },
        cause,
      },
    );
  }
  if (cause instanceof RenderTimeoutError) {
    return new Problem('render_timeout', 'Try again. The formats json and aep-json do not wait.', {
      headers: { 'Retry-After': '5' },
      cause,
    });
  }
  return cause;
}
