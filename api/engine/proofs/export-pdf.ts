import { canonicalBytes } from '#protocol/canonical-json';
import type { Caller } from '../http/authenticate.js';
import { exportDocument } from './export-document.js';
import type { EngineDeps } from '../operation.js';
import { RendererBusyError, RenderTimeoutError } from '../pdf/pool.js';
import { Problem } from '../http/problem.js';

/**
 * Renders the JSON export as a PDF with the export attached.
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
      'All PDF renderers are busy. Retry after Retry-After, or use the format json or aep-json.',
      {
        headers: { 'Retry-After': '2' },
        cause,
      },
    );
  }
  if (cause instanceof RenderTimeoutError) {
    return new Problem(
      'render_timeout',
      'Rendering exceeded the time limit. Retry after Retry-After, or use the format json or aep-json.',
      {
        headers: { 'Retry-After': '5' },
        cause,
      },
    );
  }
  return cause;
}
