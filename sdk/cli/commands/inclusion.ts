import { utf8 } from '../../../protocol/bytes.js';
import { canonicalJson, getProofInclusionHttp } from '../../index.js';
import { text, type Command } from '../command.js';
import { deliver } from '../deliver.js';
import { EXIT } from '../exit-code.js';
import { UsageError } from '../usage-error.js';

export const inclusion: Command = {
  name: 'inclusion',
  summary: 'Where a proof is in the log, and under which signed checkpoint',
  usage: 'PROOF_ID',
  takes: { least: 1, most: 1 },
  description:
    'Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. As tlog-proof it is a C2SP .tlog-proof, which\n' +
    'tools of others read, and `svc verify --offline --tlog-proof`. What it says is checked there,\n' +
    'not here. Exits 3 while no checkpoint covers the proof.',
  options: {
    format: { type: 'string', value: 'FORMAT', help: 'json, tlog-proof; json' },
    out: { type: 'string', short: 'o', value: 'FILE', help: 'else standard output' },
  },
  examples: [
    'svc inclusion 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc inclusion 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --format tlog-proof -o proof.tlog-proof',
  ],
  run: async ({ args: [id = ''], values, json, engine, terminal }) => {
    const format = text(values, 'format') ?? 'json';
    const out = text(values, 'out');
    if (format === 'json') {
      const envelope = await getProofInclusionHttp(engine(), { proof_id: id });
      const bytes = utf8(canonicalJson(envelope.response));
      await deliver(terminal, { bytes, out, json, envelope });
      return envelope.response.state === 'included' ? EXIT.yes : EXIT.undecided;
    }
    if (format !== 'tlog-proof') throw new UsageError('--format takes json or tlog-proof');
    const envelope = await getProofInclusionHttp(engine(), { proof_id: id, format });
    await deliver(terminal, { bytes: utf8(envelope.response), out, json, envelope });
    return EXIT.yes;
  },
};
