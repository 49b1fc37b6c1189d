; Sorted lists and trees of pairs.
(define (numbers n seed) (if (= n 0) '() (cons seed (numbers (- n 1) (modulo (+ (* seed 1103515245) 12345) 2147483648)))))
(define (tree list) (if (null? list) '() (let ((p (car list)))
  (cons p (cons (tree (filter (lambda (x) (< x p)) (cdr list))) (tree (filter (lambda (x) (> x p)) (cdr list))))))))
(define (depth t) (if (null? t) 0 (+ 1 (max (depth (cadr t)) (depth (cddr t))))))
(display (depth (tree (numbers 20000 1))))
(newline)
