import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EngineOptions } from '#sdk/index';

/** A `ready.json`, as `npm start` writes it for whoever wants to connect. */
export interface ReadyFile {
  path: string;
  remove(): Promise<void>;
}

export async function readyFile(options: EngineOptions, publicUrl = ''): Promise<ReadyFile> {
  const directory = await mkdtemp(join(tmpdir(), 'svc-ready-'));
  const path = join(directory, 'ready.json');
  const ready = {
    engine_url: options.engineUrl,
    public_url: publicUrl,
    tenant_id: options.tenantId,
    api_key: options.apiKey,
  };
  await writeFile(path, JSON.stringify(ready), { mode: 0o600 });
  return { path, remove: () => rm(directory, { recursive: true, force: true }) };
}
