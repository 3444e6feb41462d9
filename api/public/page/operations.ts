import * as z from 'zod';
import type { OperationSpec } from '../../openapi/operation-spec.js';
import type { Handler, Operation } from '../operation.js';
import { getIcon, getPage, getScript, getStyle } from '../page.js';

const ETAG = { ETag: 'Strong; send it back in `If-None-Match`.' };
const optionalText = (description: string) => z.string().optional().meta({ description });
const html = (description: string): OperationSpec['responses'][number] => ({
  description,
  content: { 'text/html': 'text' },
});

const asset = (id: string, path: string, type: string, handler: Handler): Operation => ({
  spec: {
    id,
    method: 'get',
    path,
    tag: 'Page',
    summary: `Get ${path.slice(path.lastIndexOf('/') + 1)} of the page`,
    responses: {
      200: {
        description: 'A file that the page loads.',
        content: { [type]: 'text' },
        headers: ETAG,
      },
      304: { description: 'Not modified since the sent ETag.' },
    },
    problems: [],
  },
  handler,
});

export const PAGE_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'page',
      method: 'get',
      path: '/',
      tag: 'Page',
      summary: 'Show a verdict as a page',
      description:
        'Without an identifier, the page is a form. With one, it shows the response of the JSON route for ' +
        'that kind of identifier. Errors are pages too.',
      query: z.object({
        id: optionalText('The identifier to look up.'),
        identifier: optionalText('Alias of `id`, as in the JSON route.'),
        q: optionalText('Alias of `id`.'),
      }),
      fromSnapshot: true,
      answerHeaders: {
        'X-Robots-Tag': '`noindex`: lookups must not appear in search engines.',
      },
      responses: {
        200: { ...html('The form, or the verdict.'), headers: ETAG },
        304: { description: 'Not modified since the sent ETag.' },
        400: html('More than one identifier, or one that is too long.'),
        404: html('The registry has no such proof.'),
        503: {
          ...html('No valid snapshot is available.'),
          headers: { 'Retry-After': 'Seconds to wait before trying again.' },
        },
      },
      problems: [],
    },
    handler: getPage,
  },
  asset('pageStyle', '/page/style.css', 'text/css', getStyle),
  asset('pageScript', '/page/copy.js', 'text/javascript', getScript),
  asset('pageIcon', '/page/icon.svg', 'image/svg+xml', getIcon),
];
