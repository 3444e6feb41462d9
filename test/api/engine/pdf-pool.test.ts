import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { createPdfRenderer, PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { pdfRequestFor } from '../../fixtures/pdf-documents.js';
import { testFolder } from '../../fixtures/test-folder.js';
import { unhandledIn } from '../../fixtures/unhandled.js';

describe('PDF renderer', () => {
  let folder: string;
  /** Path of a renderer that waits 10 ms times `json[0]`. */
  let slow: string;
  beforeAll(async () => {
    folder = await testFolder();
    slow = join(folder, 'slow.mjs');
    await writeFile(
      slow,
      `export default async ({ json }) => {
        await new Promise((resolve) => setTimeout(resolve, json[0] * 10));
        return new Uint8Array([Object.keys(process.env).length]);
      };`,
    );
  });

  const task = (tens: number) => ({ json: Uint8Array.of(tens), pageUrl: '' });

  it('accepts as many requests as it has threads and queue slots', async () => {
    const renderer = createPdfRenderer({ threads: 1, queued: 2, timeoutMs: 20_000, file: slow });
    const taken = [1, 1, 2].map((tenantNo) => renderer.render(task(20), tenantNo));
    const full = await renderer.render(task(0), 3).catch((error: unknown) => error);
    expect(full).toMatchObject({ code: 'renderer_busy' });
    expect(full).not.toMatchObject({ options: { isTenantLimit: true } });
    await Promise.all(taken);
    await renderer.render(task(0), 1);
    await renderer.close();
  });

  it('limits one tenant to its share of the queue, and serves the tenants round-robin', async () => {
    const renderer = createPdfRenderer({ threads: 1, queued: 5, timeoutMs: 20_000, file: slow });
    const served: number[] = [];
    const serve = (tens: number, tenantNo: number) =>
      renderer.render(task(tens), tenantNo).then(() => served.push(tenantNo));
    const taken = [serve(20, 1), serve(0, 1), serve(0, 1)];
    await expect(renderer.render(task(0), 1)).rejects.toMatchObject({
      code: 'renderer_busy',
      options: { isTenantLimit: true },
    });
    taken.push(serve(0, 2));
    await Promise.all(taken);
    expect(served).toEqual([1, 1, 2, 1]);
    await renderer.close();
  });

  it('times out running and queued requests, and recovers', async () => {
    const renderer = createPdfRenderer({ threads: 1, queued: 2, timeoutMs: 500, file: slow });
    const stuck = [renderer.render(task(255), 1), renderer.render(task(255), 1)];
    await Promise.all(
      stuck.map((one) => expect(one).rejects.toMatchObject({ code: 'render_timeout' })),
    );
    const patient = createPdfRenderer({ threads: 1, queued: 2, timeoutMs: 20_000, file: slow });
    await patient.render(task(0), 1);
    // The pool replaced the stuck thread and freed its slot.
    await expect
      .poll(() =>
        renderer.render(task(0), 1).then(
          () => true,
          () => false,
        ),
      )
      .toBe(true);
    await renderer.close();
    await patient.close();
  });

  it('hides environment variables from its threads', async () => {
    const renderer = createPdfRenderer({ ...PDF_DEFAULTS, file: slow });
    expect([...(await renderer.render(task(0), 1))]).toEqual([0]);
    await renderer.close();
  });

  it('imports its file: Node ends the process when a timeout interrupts the require of an ES module', async () => {
    const loaded = join(folder, 'loaded.mjs');
    await writeFile(
      loaded,
      `const { stack } = new Error();
      export default () => new Uint8Array([Number(stack.includes('cjs/loader'))]);`,
    );
    const renderer = createPdfRenderer({ ...PDF_DEFAULTS, file: loaded });
    expect([...(await renderer.render(task(0), 1))]).toEqual([0]);
    await renderer.close();
  });

  it('ends a request at the timeout when its thread fails silently', async () => {
    const [failing, begun] = [join(folder, 'failing.mjs'), join(folder, 'begun')];
    await writeFile(
      failing,
      `import { writeFileSync } from 'node:fs';
      export default () => {
        setTimeout(() => { throw new Error('thrown after the timeout'); }, 100);
        writeFileSync(${JSON.stringify(begun)}, '');
        return new Promise(() => undefined);
      };`,
    );
    const renderer = createPdfRenderer({ ...PDF_DEFAULTS, timeoutMs: 600, file: failing });
    const unhandled = await unhandledIn(async () => {
      const until = performance.now() + 650;
      const rendering = expect(renderer.render(task(0), 1)).rejects.toThrow();
      while (!existsSync(begun) && performance.now() < until) await nextTurn();
      // The main thread is busy, so the timeout and the thread's error arrive together.
      while (performance.now() < until);
      await rendering;
      await new Promise((resolve) => setTimeout(resolve, 50));
    });
    expect(unhandled).toEqual([]);
    await renderer.close();
  });

  it('reports an error thrown in a thread, and recovers', async () => {
    const renderer = createPdfRenderer(PDF_DEFAULTS);
    const broken = renderer.render({ json: Buffer.from('{"a'), pageUrl: '' }, 1);
    await expect(broken).rejects.toThrow(/unterminated/);
    expect((await renderer.render(pdfRequestFor(), 1)).length).toBeGreaterThan(10_000);
    await renderer.close();
  });
});
