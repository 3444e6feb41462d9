import type { ReaderText } from '../../docs/reader.js';
import type { OpenApiParameter } from '../../openapi/types.js';
import { PROBLEMS } from '../http/problem.js';
import { GUIDE } from './guide.js';

const API_KEY: OpenApiParameter = {
  name: 'X-Svc-Api-Key',
  in: 'header',
  required: true,
  description: 'Your engine key.',
  schema: { type: 'string' },
};

/** Texts of the documentation page that are not in the OpenAPI document. */
export const READER_TEXT: ReaderText = {
  guide: GUIDE,
  problems: PROBLEMS,
  credentialsOf: ({ 'x-scopes': scopes = [] }) => (scopes.length > 0 ? [API_KEY] : []),
  shell: {
    about:
      'Set your own values once, with ids from responses. Then paste the examples below unchanged. ' +
      'Examples with a complete document or a policy digest only show the format: the registry ' +
      'does not contain these and responds accordingly.',
    setup: `export SVC_URL=http://127.0.0.1:8080
export SVC_API_KEY=svc_sk_…
export SVC_TENANT_ID=demo
export PROOF_ID=… # registry_proof_id of a receipt
export BATCH_ID=… # batch_id of a batch
export PACKAGE_ID=… # package_id of a trust package
export TOKEN_HASH=… # token_hash of a share token`,
    inPath: {
      proof_id: '$PROOF_ID',
      batch_id: '$BATCH_ID',
      package_id: '$PACKAGE_ID',
      token_hash: '$TOKEN_HASH',
      artifact_kind: 'certificate',
    },
    queries: {},
    headersOf: ({ parameters, 'x-scopes': scopes = [] }) => [
      ...(scopes.length > 0
        ? ['-H "X-Svc-Api-Key: $SVC_API_KEY"', '-H "X-Svc-Tenant-Id: $SVC_TENANT_ID"']
        : []),
      ...(parameters.some(({ name }) => name === 'svc-api-version')
        ? ["-H 'svc-api-version: v1'"]
        : []),
    ],
    inBody: [
      [/^( {2}"tenant_id": )"[^"]*"/gm, '$1"$SVC_TENANT_ID"'],
      [/^( {2}"(?:parent_)?proof_id": )"[^"]*"/gm, '$1"$PROOF_ID"'],
      [/^( {2}"proof_ids": )\[[^\]]*\]/gm, '$1["$PROOF_ID"]'],
      [/^( {2}"package_id": )"[^"]*"/gm, '$1"$PACKAGE_ID"'],
    ],
  },
};
